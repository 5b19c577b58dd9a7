"""Notice endpoints that are e-mail addresses over the API, with a real mail server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient
from sqlalchemy import update

from app.config import Settings
from app.domain.hours import HOUR_MS
from app.domain.mail_confirmations import (
    PER_ACCOUNT_AND_HOUR_MAX,
    PER_ADDRESS_AND_DAY_MAX,
    VALID_MS,
)
from app.domain.model import Webhook
from app.store import Store
from app.store.notice_tables import mail_confirmations
from tests.support.database.migrated import ReusedStore
from tests.support.http.mail_server import MailServerThread
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

PATH = "/notice-endpoints"
URL = "mailto:ops@example.com"


@pytest.fixture(scope="module")
def mail_server() -> Iterator[MailServerThread]:
    with MailServerThread() as server:
        yield server


@pytest.fixture
def server(mail_server: MailServerThread) -> MailServerThread:
    """The server, which accepts everything and has no mails yet."""
    mail_server.answer()
    mail_server.mails.clear()
    return mail_server


@pytest.fixture
def settings(
    tmp_path: Path, reused_store: ReusedStore, refused_address: str, server: MailServerThread
) -> Settings:
    return Settings(
        data_dir=tmp_path,
        database=reused_store.url,
        bootstrap_servers=refused_address,
        smtp_url=server.url,
        smtp_from="Rewind <rewind@example.com>",
        public_url="https://rewind.example.com",
    )


async def registered(client: AsyncClient, url: str = URL, **members: Any) -> dict[str, Any]:
    answer = await client.post(PATH, json={"url": url} | members)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


def code_in(server: MailServerThread) -> str:
    """The code in the last mail."""
    found = re.search(r"code within a day: ([A-Z2-9-]+)\n", server.mails[-1].text)
    assert found
    return found[1]


async def confirmed(client: AsyncClient, endpoint: dict[str, Any], code: str) -> Any:
    return await client.post(f"{PATH}/{endpoint['id']}/confirm", json={"code": code})


async def test_an_address_gets_no_notices_until_it_is_confirmed(
    developers_client: AsyncClient, store: Store, webhook: Webhook, server: MailServerThread
) -> None:
    endpoint = await registered(developers_client, description="http://evil.example")
    assert (endpoint["url"], endpoint["status"], endpoint["secret"]) == (URL, "PENDING", None)
    assert endpoint["statusReason"] == "confirm the address with the code in the mail"
    (mail,) = server.mails
    assert (mail.recipient, mail.message["Subject"]) == (
        *("ops@example.com", "[Rewind] Confirm this address"),
    )
    path = f"{PATH}/{endpoint['id']}"
    assert f"https://rewind.example.com/console{path}\n" in mail.text
    assert "evil" not in mail.text
    store.disable_webhook(webhook.id, "by hand")
    assert store.claim_account_notice(60, []) is None

    wrong = await confirmed(developers_client, endpoint, "AAAA-AAAA-AAAA")
    assert (wrong.status_code, wrong.json()["type"]) == (422, "urn:rewind:problem:not-validated")
    right = await confirmed(developers_client, endpoint, code_in(server).lower().replace("-", " "))
    document = right.json()
    assert (document["status"], document["statusReason"]) == ("ENABLED", None)
    assert document["validatedAt"] is not None
    store.enable_webhook(webhook.id, webhook.url)
    store.disable_webhook(webhook.id, "by hand")
    assert store.claim_account_notice(60, [], with_mails=False) is None
    notice = store.claim_account_notice(60, [])
    assert notice is not None
    assert notice.webhook_name == webhook.description


async def test_another_code_is_sent_and_both_are_valid_for_a_day(
    developers_client: AsyncClient, store: Store, server: MailServerThread
) -> None:
    endpoint = await registered(developers_client)
    first = code_in(server)
    path = f"{PATH}/{endpoint['id']}"
    again = await developers_client.post(f"{path}/enable")
    assert (again.status_code, again.json()["status"]) == (200, "PENDING")
    assert code_in(server) != first
    make_older(store, VALID_MS)
    assert (await confirmed(developers_client, endpoint, first)).status_code == 422
    make_older(store, 1_000 - VALID_MS)
    assert (await confirmed(developers_client, endpoint, first)).status_code == 200


def make_older(store: Store, age_ms: int) -> None:
    """Let the confirmation mails have been sent earlier."""
    sent_ms = mail_confirmations.c.sent_ms - age_ms
    statement = update(mail_confirmations).values(sent_ms=sent_ms)
    store.database.write(lambda connection: connection.execute(statement))


async def test_a_new_address_is_confirmed_by_its_own_code(
    developers_client: AsyncClient, server: MailServerThread
) -> None:
    endpoint = await registered(developers_client)
    code = code_in(server)
    assert (await confirmed(developers_client, endpoint, code)).status_code == 200
    path, url = f"{PATH}/{endpoint['id']}", "mailto:new@example.com"
    moved = (await developers_client.patch(path, json={"url": url})).json()
    assert (moved["url"], moved["status"], moved["validatedAt"]) == (url, "PENDING", None)
    assert server.mails[-1].recipient == "new@example.com"
    assert (await confirmed(developers_client, endpoint, code)).status_code == 422
    assert (await confirmed(developers_client, endpoint, code_in(server))).status_code == 200
    sent = len(server.mails)
    same = await developers_client.patch(path, json={"url": url, "description": "x"})
    assert (same.json()["status"], len(server.mails)) == ("ENABLED", sent)


async def test_a_confirmed_address_is_disabled_enabled_and_tested(
    developers_client: AsyncClient, server: MailServerThread
) -> None:
    endpoint = await registered(developers_client)
    path = f"{PATH}/{endpoint['id']}"
    refused = await developers_client.post(f"{path}/test")
    assert (refused.status_code, len(server.mails)) == (422, 1)
    await confirmed(developers_client, endpoint, code_in(server))
    await developers_client.post(f"{path}/disable")
    assert (await developers_client.post(f"{path}/enable")).json()["status"] == "ENABLED"
    assert len(server.mails) == 1
    result = (await developers_client.post(f"{path}/test")).json()
    assert (result["delivered"], result["status"], result["reason"]) == (True, 250, None)
    assert result["response"] == "2.0.0 queued"
    assert server.mails[-1].message["Subject"] == "[Rewind] Test of a notice endpoint"
    server.answer(RCPT="550 5.1.1 unknown")
    result = (await developers_client.post(f"{path}/test")).json()
    assert (result["delivered"], result["status"]) == (False, 550)
    server.answer(CONNECT="554 no")
    result = (await developers_client.post(f"{path}/test")).json()
    assert (result["status"], result["reason"], result["response"]) == (
        *(None, "mail server unavailable", None),
    )


async def test_the_mail_servers_refusal_is_the_status_reason(
    developers_client: AsyncClient, server: MailServerThread
) -> None:
    server.answer(RCPT="550 5.1.1 unknown user")
    endpoint = await registered(developers_client)
    assert endpoint["status"] == "PENDING"
    assert endpoint["statusReason"].endswith("mail server replied 550 5.1.1 unknown user")
    refused = await developers_client.post(f"{PATH}/{endpoint['id']}/enable")
    assert refused.status_code == 422
    assert "unknown user" in refused.json()["detail"]


async def test_an_account_causes_a_limited_number_of_confirmation_mails(
    developers_client: AsyncClient,
    others_client: AsyncClient,
    store: Store,
    server: MailServerThread,
) -> None:
    endpoint = await registered(developers_client)
    path = f"{PATH}/{endpoint['id']}"
    for _ in range(PER_ADDRESS_AND_DAY_MAX - 1):
        assert (await developers_client.post(f"{path}/enable")).status_code == 200
    # A new endpoint and another spelling change nothing.
    await developers_client.delete(path)
    endpoint = await registered(developers_client, "mailto:OPS@example.com")
    assert f"{PER_ADDRESS_AND_DAY_MAX} confirmation mails" in endpoint["statusReason"]
    limited = await developers_client.post(f"{PATH}/{endpoint['id']}/enable")
    assert limited.status_code == 429
    assert 0 < int(limited.headers["retry-after"]) <= VALID_MS // 1_000
    assert len(server.mails) == PER_ADDRESS_AND_DAY_MAX

    for n in range(PER_ACCOUNT_AND_HOUR_MAX - PER_ADDRESS_AND_DAY_MAX):
        other = await registered(developers_client, f"mailto:other{n}@example.com")
    assert len(server.mails) == PER_ACCOUNT_AND_HOUR_MAX
    limited = await developers_client.post(f"{PATH}/{other['id']}/enable")
    assert limited.status_code == 429
    assert int(limited.headers["retry-after"]) <= HOUR_MS // 1_000
    assert (await registered(others_client))["statusReason"].startswith("confirm")
    make_older(store, HOUR_MS)
    assert (await developers_client.post(f"{PATH}/{other['id']}/enable")).status_code == 200
    assert store.delete_old_confirmations() == 0
    make_older(store, VALID_MS)
    assert store.delete_old_confirmations() == PER_ACCOUNT_AND_HOUR_MAX + 2


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"url": "mailto:ops@example.com?bcc=x@example.com"}, "url-refused"),
        ({"url": "mailto:a@example.com,b@example.com"}, "url-refused"),
        ({"url": "mailto:ops@example.com\r\nBcc: x@example.com"}, "url-refused"),
        ({"url": URL, "secret": "whsec_" + "A" * 32}, "invalid-request"),
    ],
)
async def test_an_endpoint_that_cannot_get_mail_is_rejected(
    developers_client: AsyncClient,
    store: Store,
    server: MailServerThread,
    body: dict[str, str],
    problem: str,
) -> None:
    answer = await developers_client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["type"]) == (400, f"urn:rewind:problem:{problem}")
    assert (store.notice_endpoints().items, server.mails) == ((), [])


async def test_addresses_stay_addresses_and_have_no_secret(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    mail, http = (
        await registered(developers_client),
        await registered(developers_client, receiver.url),
    )
    for endpoint, url in ((mail, receiver.url), (http, URL)):
        refused = await developers_client.patch(f"{PATH}/{endpoint['id']}", json={"url": url})
        assert (refused.status_code, refused.json()["field"]) == (400, "url")
    rotated = await developers_client.post(f"{PATH}/{mail['id']}/secret/rotate")
    assert rotated.status_code == 400
    assert (await confirmed(developers_client, http, "AAAA-AAAA-AAAA")).status_code == 422


async def test_the_address_of_another_account_is_not_found(
    developers_client: AsyncClient, others_client: AsyncClient, server: MailServerThread
) -> None:
    endpoint = await registered(developers_client)
    assert (await confirmed(others_client, endpoint, code_in(server))).status_code == 404
