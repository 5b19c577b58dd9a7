"""Registering a webhook in the console."""

import logging
from typing import Any

import pytest

from app.domain.model import Validation, Webhook
from app.store import Store
from logbroker.json_log import JsonLines
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

LIST = "/console/webhooks"
SECRET = ".//main//textarea[@id='secret-text']"

HOSTILE = "<script>alert(1)</script>\"'>"


def the_webhook(store: Store) -> Webhook:
    (webhook,) = store.webhooks().items
    return webhook


async def test_the_secret_is_shown_once(
    developers_client: ConsoleClient, store: Store, developer: Issued, receiver: ReceiverThread
) -> None:
    form = (await developers_client.page(f"{LIST}/new")).fields(".//main//form")
    assert (form["url"], form["validation"]) == ("", "ping")
    filled = form | {
        "url": receiver.url,
        "description": "billing",
        "eventTypes": "dm.* \n follow.*",
    }
    answer = await developers_client.http.post(LIST, data=filled)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "location" not in answer.headers
    assert "set-cookie" not in answer.headers

    webhook, page = the_webhook(store), HtmlPage(answer.text)
    assert (webhook.url, webhook.description) == (receiver.url, "billing")
    assert webhook.account_id == developer[0].account.id
    assert webhook.validation is Validation.PING
    assert store.rule(webhook.id, "default").event_types == ("dm.*", "follow.*")
    assert page.texts(SECRET) == [webhook.secret]
    assert "the webhook is ENABLED" in page.main
    assert [each.is_ping for each in receiver.webhooks] == [True]

    for path in (f"{LIST}/{webhook.id}", LIST):
        assert webhook.secret not in (await developers_client.page(path)).markup


async def test_a_webhook_is_registered_even_if_the_verification_fails(
    developers_client: ConsoleClient, store: Store, receiver: ReceiverThread
) -> None:
    receiver.answer(503)
    page = await developers_client.posted(LIST, {"url": receiver.url, "validation": "crc"})
    webhook = the_webhook(store)
    assert page.texts(SECRET) == [webhook.secret]
    assert "The webhook is PENDING" in page.main
    assert webhook.status_reason is not None
    assert webhook.status_reason in page.main
    assert webhook.validation is Validation.CRC
    form = page.one(".//main//form")
    assert form.get("action") == f"{LIST}/{webhook.id}/enable"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("url", "", "url"),
        ("url", "ftp://example.com/", "https"),
        ("url", "https://example.com/\N{SNOWMAN}", "url"),
        ("description", "x" * 501, "500"),
        ("eventTypes", "dm.* Grüße", "eventTypes[1] is 'Grüße'"),
        ("eventTypes", "x " * 51, "50"),
    ],
)
async def test_a_rejected_form_is_shown_again_with_its_errors(
    developers_client: ConsoleClient, store: Store, field: str, value: str, expected: str
) -> None:
    filled = {"url": "https://example.com/", "description": HOSTILE, "validation": "crc"}
    page = await developers_client.posted(LIST, filled | {field: value}, 400)
    assert expected in page.error_of(field)
    kept = page.fields(".//main//form")
    assert {name: kept[name] for name in filled} == filled | (
        {} if field == "eventTypes" else {field: value}
    )
    assert not page.all(".//main//script")
    assert store.webhooks().items == ()


@pytest.mark.parametrize(
    ("field", "value", "status", "expected"),
    [
        ("validation", "promise", 400, "validation is 'promise'; allowed is 'ping' or 'crc'"),
        ("accountId", "acc_unknown", 403, "allowed is the account of the key"),
    ],
)
async def test_errors_without_a_field_are_shown_above_the_form(
    developers_client: ConsoleClient,
    store: Store,
    field: str,
    value: str,
    status: int,
    expected: str,
) -> None:
    filled = {"url": "https://example.com/", "validation": "ping"}
    page = await developers_client.posted(LIST, filled | {field: value}, status)
    assert expected in page.main
    assert store.webhooks().items == ()


async def test_an_operator_registers_for_an_existing_account(
    client: ConsoleClient, store: Store, developer: Issued, receiver: ReceiverThread
) -> None:
    filled = {"url": receiver.url, "validation": "ping", "accountId": "acc_unknown"}
    page = await client.posted(LIST, filled, 404)
    assert "'acc_unknown' does not exist" in page.main
    assert page.field("accountId") == "acc_unknown"
    await client.posted(LIST, filled | {"accountId": developer[0].account.id})
    assert the_webhook(store).account_id == developer[0].account.id


async def test_the_limit_of_webhooks_per_account_is_reported(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, receiver: ReceiverThread
) -> None:
    filled = {"url": receiver.url, "validation": "ping"}
    for _ in range(19):
        await developers_client.posted(LIST, filled)
    page = await developers_client.posted(LIST, filled, 409)
    assert "20 webhooks" in page.main
    assert page.field("url") == receiver.url


async def test_the_secret_is_not_logged(
    developers_client: ConsoleClient,
    store: Store,
    developer: Issued,
    receiver: ReceiverThread,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await developers_client.posted(LIST, {"url": receiver.url, "validation": "ping"})
    await developers_client.posted(LIST, {"url": "", "validation": "ping"}, 400)
    webhook = the_webhook(store)
    lines = [JsonLines().format(record) for record in caplog.records]
    assert not [line for line in lines if webhook.secret.removeprefix("whsec_") in line]
    records: list[Any] = [record for record in caplog.records if record.name == "rewind.audit"]
    changes = [(record.action, record.target, record.status, record.key_id) for record in records]
    key_id = developer[0].id
    assert changes[-2:] == [
        ("createWebhook", webhook.id, 200, key_id),
        ("createWebhook", None, 400, key_id),
    ]
