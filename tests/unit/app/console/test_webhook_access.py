"""Access to webhooks in the console, on every route."""

from typing import Final

import pytest
from fastapi.routing import APIRoute

from app.console import rules, webhook_actions, webhooks
from app.console import webhook as webhook_page
from app.domain.model import Webhook
from app.domain.rules import Rule
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

ROUTES: Final = [
    (method, route.path)
    for pages in (webhooks, webhook_page, webhook_actions, rules)
    for route in pages.router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]
OF_ONE: Final = [each for each in ROUTES if "{webhook_id}" in each[1]]
FORMS: Final = [path for method, path in ROUTES if method == "POST"]

FILLED: Final = {
    "url": "https://example.com/new",
    "description": "changed",
    "validation": "ping",
    "reason": "changed",
    "secret": new_secret(),
    "gracePeriodSeconds": "0",
    "name": "changed",
    "eventTypes": "*",
    "where": "",
    "event": '{"type": "changed", "data": {}}',
}


RULE: Final = "vip"


@pytest.fixture
def webhook(store: Store, webhook: Webhook) -> Webhook:
    """Return the developer's webhook, with a rule."""
    store.put_rule(Rule(webhook.id, RULE, ("dm.*",)))
    return webhook


def at(path: str, webhook_id: str) -> str:
    return path.replace("{webhook_id}", webhook_id).replace("{name}", RULE)


def assert_unchanged(store: Store, webhook: Webhook) -> None:
    assert store.webhooks().items == (webhook,)
    assert store.rules(webhook.id).items == (Rule(webhook.id, RULE, ("dm.*",)),)


def test_all_routes_are_covered() -> None:
    assert len(ROUTES) == len(set(ROUTES)) == 22
    assert len(FORMS) == 11


async def test_a_webhook_of_another_account_is_not_found(
    others_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    form = FILLED | {"csrf": await others_client.csrf()}
    for method, path in OF_ONE:
        for webhook_id in (webhook.id, "wh_none", "<script>"):
            answer = await others_client.http.request(
                method,
                at(path, webhook_id),
                data=form if method == "POST" else None,
            )
            assert answer.status_code == 404, f"{method} {path}"
            assert webhook.url not in answer.text
            assert "<script>'" not in answer.text
    assert_unchanged(store, webhook)


async def test_a_read_only_key_changes_nothing(
    readers_client: ConsoleClient, store: Store, webhook: Webhook, receiver: ReceiverThread
) -> None:
    for path in FORMS:
        answer = await readers_client.post(at(path, webhook.id), FILLED | {"url": receiver.url})
        assert answer.status_code == 403, path
    assert_unchanged(store, webhook)
    assert receiver.webhooks == []


async def test_a_read_only_key_sees_no_forms_and_no_secrets(
    readers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    shown = f"/console/webhooks/{webhook.id}"
    for path in ("/console/webhooks", shown, f"{shown}/rules"):
        page = await readers_client.page(path)
        assert not page.all(".//main//form[@method='post']")
        assert webhook.secret not in page.markup
        for link in page.all(".//main//a"):
            assert link.get("href", "").rpartition("/")[2] not in (
                *("new", "edit", "rotate", "disable", "delete", "new-rule", RULE),
            )
    for method, path in ROUTES:
        if method == "GET" and path.rpartition("/")[2] not in ("webhooks", "{webhook_id}", "rules"):
            answer = await readers_client.get(at(path, webhook.id))
            assert answer.status_code == 403, path


async def test_a_cross_site_form_changes_nothing(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, receiver: ReceiverThread
) -> None:
    filled = FILLED | {"url": receiver.url}
    ours = filled | {"csrf": await developers_client.csrf()}
    post = developers_client.http.post
    for path in FORMS:
        where = at(path, webhook.id)
        answers = [
            await post(where, data=filled),
            await post(where, data=filled | {"csrf": "0" * 64}),
            await post(where, data=ours, headers={"sec-fetch-site": "cross-site"}),
            await post(where, data=ours, headers={"origin": "https://evil.example"}),
        ]
        assert [answer.status_code for answer in answers] == [403] * 4, path
    assert_unchanged(store, webhook)
    assert receiver.webhooks == []


async def test_without_a_session_every_page_redirects_to_sign_in(
    anonymous: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    for method, path in ROUTES:
        data = FILLED if method == "POST" else None
        answer = await anonymous.http.request(method, at(path, webhook.id), data=data)
        assert answer.status_code == 303, f"{method} {path}"
        assert answer.headers["location"].startswith("/console/sign-in")
    assert_unchanged(store, webhook)
