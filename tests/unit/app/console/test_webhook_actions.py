"""Actions on a webhook in the console."""

import asyncio
import logging
from typing import Any

import pytest

from app.domain.endpoint_options import Ordering
from app.domain.model import NewReplay, Webhook, WebhookStatus, Window
from app.domain.states import ReplayState
from app.services import verification
from app.store import Store, WebhookNotFound
from app.webhooks.signing import new_secret
from logbroker.json_log import JsonLines
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

LIST = "/console/webhooks"
SECRET = ".//main//textarea[@id='secret-text']"
FORM = ".//main//form"
TEST = ".//section[@aria-label='Test delivery']"

HOSTILE = "<script>alert(1)</script>\"'>"


def page_of(webhook: Webhook) -> str:
    return f"{LIST}/{webhook.id}"


@pytest.fixture
def reached(store: Store, webhook: Webhook, receiver: ReceiverThread) -> Webhook:
    """Return the developer's webhook, ENABLED with the receiver's URL."""
    receiver.expect(webhook.secret)
    store.update_webhook(webhook.id, url=receiver.url)
    return store.enable_webhook(webhook.id, receiver.url)


async def redirected(
    client: ConsoleClient, path: str, data: dict[str, str] | None = None
) -> HtmlPage:
    """Return the page that a form redirects to."""
    answer = await client.post(path, data)
    assert answer.status_code == 303, answer.text
    return await client.page(answer.headers["location"])


async def test_a_test_event_is_sent_and_its_result_shown(
    developers_client: ConsoleClient, reached: Webhook, receiver: ReceiverThread
) -> None:
    page = await developers_client.posted(f"{page_of(reached)}/test")
    shown = page.one(TEST)
    assert "Test delivered." in page.texts(TEST)[0]
    facts = [cell.text or "" for cell in shown.findall(".//dd")]
    assert facts[0] == "HTTP 204"
    assert facts[1].endswith((" ms", " s"))
    (sent,) = receiver.webhooks
    assert sent.event_id.startswith("test_")
    assert receiver.problems == []

    receiver.answer(503)
    page = await developers_client.posted(f"{page_of(reached)}/test")
    assert "Test failed." in page.texts(TEST)[0]
    assert "HTTP 503" in page.texts(TEST)[0]
    receiver.go_down()
    page = await developers_client.posted(f"{page_of(reached)}/test")
    assert "none: connect: Connection refused" in page.texts(TEST)[0]


async def test_a_response_is_escaped_and_hidden_until_the_receiver_is_verified(
    developers_client: ConsoleClient, client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 500 X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(HOSTILE.encode()) + HOSTILE.encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store.update_webhook(webhook.id, url=f"http://127.0.0.1:{port}/")
        path = f"{page_of(webhook)}/test"
        page = await developers_client.posted(path)
        assert "hidden until the receiver is verified" in page.texts(TEST)[0]
        page = await client.posted(path)
    assert page.texts(f"{TEST}//pre") == [HOSTILE]
    assert not page.all(".//main//script")


async def test_too_many_tests_per_minute_are_rejected(
    developers_client: ConsoleClient, reached: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "VERIFICATIONS_PER_MINUTE_MAX", 1)
    await developers_client.posted(f"{page_of(reached)}/test")
    page = await developers_client.posted(f"{page_of(reached)}/test", status=429)
    assert page.texts(".//main//p[@role='alert']") == [
        "Too many requests: limit: 1 verifications per minute"
    ]
    assert not page.all(TEST)


async def test_a_webhook_is_disabled_with_a_reason_and_enabled_after_verification(
    developers_client: ConsoleClient, store: Store, reached: Webhook, receiver: ReceiverThread
) -> None:
    path = page_of(reached)
    form = (await developers_client.page(f"{path}/disable")).fields(FORM)
    page = await redirected(developers_client, f"{path}/disable", form | {"reason": HOSTILE})
    assert "Webhook disabled" in page.texts(".//p[@role='status']")[-1]
    assert HOSTILE in page.main
    assert store.webhook(reached.id).status_reason == HOSTILE
    assert not page.all(f".//a[@href='{path}/disable']")

    receiver.answer(404)
    page = await developers_client.posted(f"{path}/enable", status=422)
    assert "404" in page.texts(".//main//p[@role='alert']")[0]
    assert store.webhook(reached.id).status is WebhookStatus.DISABLED

    receiver.answer(200)
    page = await redirected(developers_client, f"{path}/enable")
    assert "the webhook is ENABLED" in page.texts(".//p[@role='status']")[-1]
    assert store.webhook(reached.id).status is WebhookStatus.ENABLED


async def test_the_reason_has_a_default_and_a_maximum_length(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    path = f"{page_of(webhook)}/disable"
    page = await developers_client.posted(path, {"reason": "x" * 501}, 400)
    assert "500" in page.error_of("reason")
    assert page.field("reason") == "x" * 501
    assert store.webhook(webhook.id).status is WebhookStatus.ENABLED
    await redirected(developers_client, path, {"reason": " "})
    assert store.webhook(webhook.id).status_reason == "disabled by its owner"


async def test_a_rotated_secret_is_shown_once(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    path = f"{page_of(webhook)}/rotate"
    confirmation = await developers_client.page(path)
    assert webhook.secret not in confirmation.markup
    form = confirmation.fields(FORM)
    assert form["gracePeriodSeconds"] == "86400"
    answer = await developers_client.http.post(path, data=form)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"

    stored = store.webhook(webhook.id)
    assert stored.secret != webhook.secret
    assert stored.previous_secret == webhook.secret
    assert HtmlPage(answer.text).texts(SECRET) == [stored.secret]
    assert webhook.secret not in answer.text
    assert stored.secret not in (await developers_client.page(page_of(webhook))).markup
    again = (await developers_client.page(path)).fields(FORM)
    assert again["secret"] not in (form["secret"], webhook.secret)


async def test_a_form_submitted_twice_rotates_once(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    path = f"{page_of(webhook)}/rotate"
    form = (await developers_client.page(path)).fields(FORM)
    first, second = [await developers_client.http.post(path, data=form) for _ in range(2)]
    stored = store.webhook(webhook.id)
    assert HtmlPage(first.text).texts(SECRET) == HtmlPage(second.text).texts(SECRET)
    assert stored.previous_secret == webhook.secret

    later = (await developers_client.page(path)).fields(FORM)
    await developers_client.http.post(path, data=later)
    page = await redirected(developers_client, path, form)
    assert "Secret not rotated" in page.texts(".//p[@role='status']")[-1]
    assert store.webhook(webhook.id).secret == later["secret"]


@pytest.mark.parametrize("grace", ["", "1.5", "-1", "604801", "²", "9" * 4_400])
async def test_an_invalid_grace_period_is_rejected(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, grace: str
) -> None:
    path = f"{page_of(webhook)}/rotate"
    form = {"secret": new_secret(), "gracePeriodSeconds": grace}
    page = await developers_client.posted(path, form, 400)
    assert page.error_of("gracePeriodSeconds")
    assert store.webhook(webhook.id).secret == webhook.secret


@pytest.mark.parametrize("secret", ["", "hunter2", "whsec_c2hvcnQ="])
async def test_an_invalid_secret_is_rejected_and_not_repeated(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, secret: str
) -> None:
    form = {"secret": secret, "gracePeriodSeconds": "0"}
    answer = await developers_client.post(f"{page_of(webhook)}/rotate", form)
    assert answer.status_code == 400
    assert not secret or secret not in answer.text
    assert store.webhook(webhook.id).secret == webhook.secret


async def test_a_new_url_is_verified_and_a_new_description_is_not(
    developers_client: ConsoleClient, store: Store, reached: Webhook, receiver: ReceiverThread
) -> None:
    path = f"{page_of(reached)}/edit"
    form = (await developers_client.page(path)).fields(FORM)
    assert (form["url"], form["description"]) == (reached.url, "billing")
    page = await redirected(developers_client, path, form | {"description": HOSTILE})
    assert "Webhook updated" in page.texts(".//p[@role='status']")[-1]
    assert HOSTILE in page.main
    assert receiver.webhooks == []

    await redirected(developers_client, path, form | {"url": f"{receiver.url}/2"})
    changed = store.webhook(reached.id)
    assert (changed.url, changed.status) == (f"{receiver.url}/2", WebhookStatus.ENABLED)
    assert [each.is_ping for each in receiver.webhooks] == [True]
    receiver.answer(500)
    page = await redirected(developers_client, path, form | {"url": f"{receiver.url}/3"})
    assert "PENDING" in page.main
    assert "500" in page.main


async def test_a_new_description_keeps_a_url_changed_concurrently(
    client: ConsoleClient, developers_client: ConsoleClient, store: Store, reached: Webhook
) -> None:
    path = f"{page_of(reached)}/edit"
    form = (await developers_client.page(path)).fields(FORM)
    colleagues = (await client.page(path)).fields(FORM)
    await redirected(client, path, colleagues | {"url": f"{reached.url}/moved"})
    await redirected(developers_client, path, form | {"description": "orders"})
    changed = store.webhook(reached.id)
    assert (changed.url, changed.description) == (f"{reached.url}/moved", "orders")


async def test_strict_order_is_turned_on_and_off(
    developers_client: ConsoleClient, store: Store, reached: Webhook
) -> None:
    path = f"{page_of(reached)}/edit"
    for ordering in Ordering.STRICT, Ordering.NONE:
        form = (await developers_client.page(path)).fields(FORM)
        assert form["ordering"] != ordering
        await redirected(developers_client, path, form | {"ordering": ordering})
        assert store.webhook(reached.id).is_ordered == (ordering is Ordering.STRICT)


@pytest.mark.parametrize(
    ("field", "value"), [("url", ""), ("url", "ftp://example.com/"), ("description", "x" * 501)]
)
async def test_an_invalid_change_is_shown_again(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, field: str, value: str
) -> None:
    filled = {"url": "https://example.com/other", "description": HOSTILE} | {field: value}
    page = await developers_client.posted(f"{page_of(webhook)}/edit", filled, 400)
    assert page.error_of(field)
    assert page.fields(FORM).items() >= filled.items()
    assert store.webhook(webhook.id) == webhook


async def test_deleting_a_webhook_cancels_its_job(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    path = f"{page_of(webhook)}/delete"
    confirmation = await developers_client.page(path)
    assert f"Job {replay.id} (OPEN) will be cancelled." in confirmation.main
    page = await redirected(developers_client, path, confirmation.fields(FORM))
    assert "Webhook and secret deleted" in page.texts(".//p[@role='status']")[-1]
    with pytest.raises(WebhookNotFound):
        store.webhook(webhook.id)
    assert store.replay(replay.id).state is ReplayState.CANCELLED
    assert (await developers_client.get(page_of(webhook))).status_code == 404


async def test_every_change_is_audited_without_secrets(
    developers_client: ConsoleClient,
    store: Store,
    reached: Webhook,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    path = page_of(reached)
    rotation = (await developers_client.page(f"{path}/rotate")).fields(FORM)
    caplog.clear()
    for action, form in (
        ("test", {}),
        ("rotate", rotation),
        ("edit", {"url": "ftp://example.com/", "description": ""}),
        ("edit", {"url": reached.url, "description": ""}),
        ("disable", {}),
        ("enable", {}),
        ("delete", {}),
    ):
        await developers_client.post(f"{path}/{action}", form)
    records: list[Any] = [record for record in caplog.records if record.name == "rewind.audit"]
    changes = [(record.action, record.target, record.status) for record in records]
    assert changes == [
        ("testWebhook", reached.id, 200),
        ("rotateSecret", reached.id, 200),
        ("updateWebhook", reached.id, 400),
        ("updateWebhook", reached.id, 303),
        ("disableWebhook", reached.id, 303),
        # The receiver only knows the previous secret, which still signs.
        ("enableWebhook", reached.id, 303),
        ("deleteWebhook", reached.id, 303),
    ]
    lines = "".join(JsonLines().format(record) for record in caplog.records)
    for secret in (rotation["secret"], reached.secret):
        assert secret.removeprefix("whsec_") not in lines
