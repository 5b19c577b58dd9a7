"""E-mail addresses for notices in the console, with a real mail server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import Settings
from app.domain.account_notices import NoticeEndpoint
from app.domain.model import WebhookStatus
from app.store import Store
from tests.support.database.migrated import ReusedStore
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage
from tests.support.http.mail_server import MailServerThread

pytestmark = pytest.mark.anyio

LIST = "/console/notice-endpoints"
ADDRESS = "ops@example.com"
BUTTONS = ".//main//button"
LINKS = ".//main//div[@role='group']/a"
ALERT = ".//main//p[@role='alert']"


@pytest.fixture
def server() -> Iterator[MailServerThread]:
    with MailServerThread() as server:
        yield server


@pytest.fixture
def settings(
    tmp_path: Path, reused_store: ReusedStore, refused_address: str, server: MailServerThread
) -> Settings:
    return Settings(
        data_dir=tmp_path,
        database=reused_store.url,
        bootstrap_servers=refused_address,
        smtp_url=server.url,
        smtp_from="rewind@example.com",
    )


async def redirected(client: ConsoleClient, path: str, data: dict[str, str]) -> HtmlPage:
    """The page that a form redirects to."""
    answer = await client.post(path, data)
    assert answer.status_code == 303, answer.text
    return await client.page(answer.headers["location"])


async def registered(client: ConsoleClient, store: Store) -> tuple[NoticeEndpoint, HtmlPage]:
    """A new endpoint, and the page that follows."""
    page = await redirected(client, LIST, {"url": ADDRESS, "description": "on-call"})
    (stored,) = store.notice_endpoints().items
    return stored, page


def code_in(server: MailServerThread) -> str:
    found = re.search(r"([A-Z2-9]{4}-){2}[A-Z2-9]{4}", server.mails[-1].text)
    assert found
    return found[0]


async def test_an_address_is_registered_confirmed_and_tested(
    developers_client: ConsoleClient, store: Store, server: MailServerThread
) -> None:
    form = await developers_client.page(f"{LIST}/new")
    assert "URL or e-mail address" in form.main
    endpoint, page = await registered(developers_client, store)
    assert (endpoint.url, endpoint.status) == (f"mailto:{ADDRESS}", WebhookStatus.PENDING)
    assert "confirm the address with the code in the mail" in page.main
    assert endpoint.secret not in page.markup
    assert not {"Send test mail", "Enable"} & set(page.texts(BUTTONS))
    assert "Rotate secret…" not in page.texts(LINKS)
    path = f"{LIST}/{endpoint.id}"

    refused = await developers_client.posted(f"{path}/confirm", {"code": "wrong"}, 422)
    assert "no valid code" in refused.texts(ALERT)[0]
    assert await developers_client.posted(f"{path}/confirm", {"code": "x" * 65}, 400)
    again = await redirected(developers_client, f"{path}/enable", {})
    assert "A mail with a code was sent" in again.texts(".//p[@role='status']")[-1]
    page = await redirected(developers_client, f"{path}/confirm", {"code": code_in(server)})
    assert "Address confirmed" in page.texts(".//p[@role='status']")[-1]
    assert store.notice_endpoint(endpoint.id).status is WebhookStatus.ENABLED
    assert not page.all(".//input[@name='code']")

    sent = await developers_client.posted(f"{path}/test")
    assert "SMTP 250" in sent.main
    server.answer(RCPT="452 4.2.2 full")
    assert "452 4.2.2 full" in (await developers_client.posted(f"{path}/test")).main
    assert ADDRESS in (await developers_client.page(LIST)).main
    assert ADDRESS in (await developers_client.page(f"{path}/delete")).main


async def test_another_address_has_to_be_confirmed(
    developers_client: ConsoleClient, store: Store, server: MailServerThread
) -> None:
    endpoint, _ = await registered(developers_client, store)
    path = f"{LIST}/{endpoint.id}"
    await redirected(developers_client, f"{path}/confirm", {"code": code_in(server)})
    edit = f"{path}/edit"
    form = (await developers_client.page(edit)).fields(".//main//form")
    assert form["url"] == ADDRESS
    page = await redirected(developers_client, edit, form | {"description": "night shift"})
    assert "ENABLED" in page.main
    page = await redirected(developers_client, edit, form | {"url": "new@example.com"})
    assert "PENDING" in page.main
    assert server.mails[-1].recipient == "new@example.com"
    refused = await developers_client.posted(edit, form | {"url": "https://example.com/"}, 400)
    assert "a mailto: URL" in refused.error_of("url")


async def test_the_page_shows_that_no_code_could_be_sent(
    developers_client: ConsoleClient, store: Store, server: MailServerThread
) -> None:
    server.answer(RCPT="550 5.1.1 unknown <script>")
    endpoint, page = await registered(developers_client, store)
    assert "550 5.1.1 unknown <script>" in page.main
    refused = await developers_client.posted(f"{LIST}/{endpoint.id}/enable", status=422)
    assert "550" in refused.texts(ALERT)[0]
