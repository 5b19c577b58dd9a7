"""Our signatures equal those of the reference package `standardwebhooks`."""

import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from app.webhooks.request import webhook_headers
from app.webhooks.signing import SignatureRefused, verify

NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_T2xkIHNlY3JldHMgc2lnbiB0aWxsIHRoZXkgZ28u"
OTHER = "whsec_T3RoZXIgc2VjcmV0cyBzaWduIG90aGVycycgbWFpbC4="
BODY = json.dumps({"id": "evt_1", "data": {"name": "Zo\u00eb"}}, ensure_ascii=False).encode()

TEXTS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)


def headers_now(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    return webhook_headers(secrets, "evt_1", int(time.time()), body)


def test_the_package_verifies_our_signatures() -> None:
    assert Webhook(NEW).verify(BODY, headers_now(NEW)) == json.loads(BODY)


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_during_the_grace_period_the_package_verifies_both_secrets(secret: str) -> None:
    Webhook(secret).verify(BODY, headers_now(NEW, OLD))


@pytest.mark.parametrize(
    ("secret", "signed_under"), [(OTHER, (NEW, OLD)), (OLD, (NEW,)), (NEW, (OLD,))]
)
def test_neither_verifies_with_another_secret(secret: str, signed_under: tuple[str, ...]) -> None:
    headers = headers_now(*signed_under)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY, headers)
    with pytest.raises(SignatureRefused):
        verify(secret, headers, BODY, time.time())


def test_the_new_secret_signs_first() -> None:
    first, second = headers_now(NEW, OLD)["webhook-signature"].split(" ")
    assert headers_now(NEW)["webhook-signature"] == first != second


@given(message_id=TEXTS, body=st.text(), ages=st.integers(-290, 290))
def test_we_verify_signatures_of_the_package(message_id: str, body: str, ages: int) -> None:
    now_s = time.time()
    moment = datetime.fromtimestamp(int(now_s) + ages, UTC)
    encoded = body.encode("utf-8", "replace")
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(NEW).sign(message_id, moment, encoded.decode()),
    }
    verify(NEW, headers, encoded, now_s)
    with pytest.raises(SignatureRefused):
        verify(NEW, headers, encoded + b" ", now_s)
