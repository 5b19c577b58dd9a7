import base64
import hashlib
import hmac
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.webhooks.challenge import crc_problem, crc_response, is_ping, ping_body
from app.webhooks.signing import SignatureRefused, verify

NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_T2xkIHNlY3JldHMgc2lnbiB0aWxsIHRoZXkgZ28u"
OTHER = "whsec_T3RoZXIgc2VjcmV0cyBzaWduIG90aGVycycgbWFpbC4="

# printf %s "$TOKEN" | openssl dgst -sha256 -hmac "$NEW" -binary | base64
TOKEN = "xyz_0-9"
RESPONSE = "sha256=FYfqpov90r9rba0bVos5qIVjG6tF1Qwpwseuvf5G3lw="


def answer_with(token: object) -> bytes:
    return json.dumps({"response_token": token}).encode()


def test_the_response_equals_the_one_of_openssl() -> None:
    assert json.loads(crc_response(NEW, TOKEN)) == {"response_token": RESPONSE}
    assert crc_problem([NEW], TOKEN, answer_with(RESPONSE)) is None


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_both_secrets_are_valid_during_the_grace_period(secret: str) -> None:
    assert crc_problem([NEW, OLD], TOKEN, crc_response(secret, TOKEN)) is None


@pytest.mark.parametrize(
    "answer",
    [
        crc_response(OTHER, TOKEN),
        crc_response(NEW, TOKEN + "x"),
        answer_with(RESPONSE.removeprefix("sha256=")),
        answer_with(RESPONSE.rstrip("=")),
        answer_with(RESPONSE + " "),
        answer_with(""),
        answer_with("\ud800"),
        answer_with("é" * 51),
    ],
)
def test_a_wrong_token_is_rejected(answer: bytes) -> None:
    problem = crc_problem([NEW, OLD], TOKEN, answer)
    assert problem == "response_token is not the HMAC-SHA256 of crc_token under the secret"


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"no json", b"[]", b"{}", b"null", b'"text"', b"\xff\xfe", b"[" * 16_000),
        *(b"9" * 10_000, answer_with(None), answer_with(5), answer_with([RESPONSE])),
        RESPONSE.encode(),
    ],
    ids=lambda answer: answer[:12].decode("latin-1"),
)
def test_a_malformed_response_is_rejected(answer: bytes) -> None:
    problem = crc_problem([NEW], TOKEN, answer)
    assert problem == "the response is not a JSON object with a string 'response_token'"


@given(st.binary(max_size=200))
def test_any_response_is_rejected_without_quoting_it(answer: bytes) -> None:
    problem = crc_problem([NEW], TOKEN, answer)
    assert problem in (
        "the response is not a JSON object with a string 'response_token'",
        "response_token is not the HMAC-SHA256 of crc_token under the secret",
    )


def test_a_challenge_cannot_make_a_receiver_sign_an_event() -> None:
    now_s, body = int(time.time()), b'{"type":"forged"}'
    token = f"evt_1.{now_s}.{body.decode()}"
    digest = json.loads(crc_response(NEW, token))["response_token"].removeprefix("sha256=")
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(now_s),
        "webhook-signature": f"v1,{digest}",
    }
    with pytest.raises(SignatureRefused):
        verify(NEW, headers, body, now_s)
    # The very same under the key of signatures: it is the key alone that keeps them apart.
    key = base64.b64decode(NEW.removeprefix("whsec_"))
    oracle = base64.b64encode(hmac.digest(key, token.encode(), hashlib.sha256)).decode()
    verify(NEW, headers | {"webhook-signature": f"v1,{oracle}"}, body, now_s)


def test_a_ping_differs_from_events() -> None:
    ping = ping_body("wh_1", 1_700_000_000_000)
    assert json.loads(ping) == {
        "type": "webhook.ping",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "data": {"webhookId": "wh_1"},
    }
    assert is_ping("ping_1", ping)
    assert not is_ping("evt_1", ping)
    assert not is_ping("ping_1", b'{"type":"ping_pong.won"}')
    assert not is_ping("ping_1", b"no json")
