"""Notice endpoints in the console: the list, one endpoint, its forms, and who may do what."""

from typing import Any, Final

import pytest
from fastapi.routing import APIRoute

from app.console import notice_endpoint, notice_endpoints
from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint, NoticeType
from app.domain.model import WebhookStatus
from app.store import NotFound, Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

LIST = "/console/notice-endpoints"
SECRET = ".//main//textarea[@id='secret-text']"
FORM = ".//main//form"
STATUS = ".//p[@role='status']"
HOSTILE = "<script>alert(1)</script>\"'>"

ROUTES: Final = [
    (method, route.path)
    for pages in (notice_endpoints, notice_endpoint)
    for route in pages.router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]
FILLED: Final = {
    "url": "https://example.com/new",
    "description": "changed",
    "reason": "changed",
    "secret": new_secret(),
    "gracePeriodSeconds": "0",
}


@pytest.fixture
def endpoint(store: Store, developer: Issued, receiver: ReceiverThread) -> NoticeEndpoint:
    """An ENABLED endpoint of the developer's account, with the receiver's URL."""
    new = NewNoticeEndpoint(developer[0].account.id, receiver.url, HOSTILE, new_secret())
    return store.enable_notice_endpoint(store.create_notice_endpoint(new).id)


def page_of(endpoint: NoticeEndpoint) -> str:
    return f"{LIST}/{endpoint.id}"


async def redirected(client: ConsoleClient, path: str, data: dict[str, Any]) -> HtmlPage:
    """The page that a form redirects to."""
    answer = await client.post(path, data)
    assert answer.status_code == 303, answer.text
    return await client.page(answer.headers["location"])


async def test_a_registered_endpoint_shows_its_secret_once(
    developers_client: ConsoleClient, store: Store, developer: Issued, receiver: ReceiverThread
) -> None:
    assert "No notice endpoints yet" in (await developers_client.page(LIST)).main
    form = (await developers_client.page(f"{LIST}/new")).fields(FORM)
    chosen = [NoticeType.WEBHOOK_DISABLED, NoticeType.REPLAY_FAILED]
    filled: dict[str, Any] = form | {
        "url": receiver.url,
        "description": HOSTILE,
        "eventTypes": [str(each) for each in chosen],
    }
    answer = await developers_client.http.post(LIST, data=filled)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    (stored,) = store.notice_endpoints().items
    assert (stored.url, stored.description) == (receiver.url, HOSTILE)
    assert stored.account_id == developer[0].account.id
    assert (stored.status, set(stored.event_types)) == (WebhookStatus.ENABLED, set(chosen))
    assert HtmlPage(answer.text).texts(SECRET) == [stored.secret]
    for path in (LIST, page_of(stored), f"{page_of(stored)}/edit"):
        page = await developers_client.page(path)
        assert stored.secret not in page.markup
        assert not page.all(".//main//script")
    listed = await developers_client.page(LIST)
    assert HOSTILE in listed.main
    assert "webhook.disabled" in listed.main


async def test_an_endpoint_is_registered_even_if_the_verification_fails(
    developers_client: ConsoleClient, store: Store, receiver: ReceiverThread
) -> None:
    receiver.answer(503)
    page = await developers_client.posted(LIST, {"url": receiver.url})
    (stored,) = store.notice_endpoints().items
    assert page.texts(SECRET) == [stored.secret]
    assert "The endpoint is PENDING" in page.main
    assert (stored.status, stored.event_types) == (WebhookStatus.PENDING, ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "ftp://example.com/"),
        ("description", "x" * 501),
        ("eventTypes", "webhook.unknown"),
    ],
)
async def test_a_rejected_form_is_shown_again_with_its_errors(
    developers_client: ConsoleClient, store: Store, field: str, value: str
) -> None:
    filled = {"url": "https://example.com/", "description": HOSTILE, "eventTypes": "replay.failed"}
    page = await developers_client.posted(LIST, filled | {field: value}, 400)
    assert page.one(f".//main//p[@id='{field}-error']").text
    kept = page.fields(FORM)
    if field != "eventTypes":
        assert (kept[field], kept["eventTypes"]) == (value, "replay.failed")
    assert store.notice_endpoints().items == ()


async def test_members_are_edited_and_a_new_url_is_verified(
    developers_client: ConsoleClient,
    store: Store,
    endpoint: NoticeEndpoint,
    receiver: ReceiverThread,
) -> None:
    path = f"{page_of(endpoint)}/edit"
    form = (await developers_client.page(path)).fields(FORM)
    assert (form["url"], form["description"], form["urlBefore"]) == (
        *(endpoint.url, HOSTILE, endpoint.url),
    )
    changed = form | {"description": "on-call", "eventTypes": "replay.failed"}
    page = await redirected(developers_client, path, changed)
    assert "Endpoint updated." in page.texts(STATUS)[-1]
    stored = store.notice_endpoint(endpoint.id)
    assert (stored.description, stored.event_types) == ("on-call", (NoticeType.REPLAY_FAILED,))
    # No verification, as the URL is the same.
    assert receiver.webhooks == []

    form = (await developers_client.page(path)).fields(FORM)
    del form["eventTypes"]
    receiver.answer(404)
    page = await redirected(developers_client, path, form | {"url": f"{receiver.url}/new"})
    assert "PENDING" in page.main
    assert "404" in page.main
    stored = store.notice_endpoint(endpoint.id)
    assert (stored.url, stored.event_types) == (f"{receiver.url}/new", ())

    page = await developers_client.posted(path, form | {"url": "ftp://example.com"}, 400)
    assert page.error_of("url")
    assert page.field("urlBefore") == endpoint.url


async def test_a_test_event_is_sent_and_its_result_shown(
    developers_client: ConsoleClient, endpoint: NoticeEndpoint, receiver: ReceiverThread
) -> None:
    receiver.expect(endpoint.secret)
    page = await developers_client.posted(f"{page_of(endpoint)}/test")
    assert "Test delivered." in page.main
    assert receiver.problems == []
    receiver.answer(503)
    assert "HTTP 503" in (await developers_client.posted(f"{page_of(endpoint)}/test")).main


async def test_a_form_submitted_twice_rotates_once(
    developers_client: ConsoleClient, store: Store, endpoint: NoticeEndpoint
) -> None:
    path = f"{page_of(endpoint)}/rotate"
    form = (await developers_client.page(path)).fields(FORM)
    first, second = [await developers_client.http.post(path, data=form) for _ in range(2)]
    stored = store.notice_endpoint(endpoint.id)
    assert HtmlPage(first.text).texts(SECRET) == HtmlPage(second.text).texts(SECRET)
    assert stored.secrets_at(0) == (form["secret"], endpoint.secret)
    assert "previous secret valid until" in (await developers_client.page(page_of(stored))).main
    later = (await developers_client.page(path)).fields(FORM)
    await developers_client.http.post(path, data=later)
    page = await redirected(developers_client, path, form)
    assert "Secret not rotated" in page.texts(STATUS)[-1]
    refused = await developers_client.posted(path, later | {"gracePeriodSeconds": "-1"}, 200)
    assert refused.texts(SECRET) == [later["secret"]]
    wrong = {"secret": new_secret(), "gracePeriodSeconds": "-1"}
    assert (await developers_client.posted(path, wrong, 400)).error_of("gracePeriodSeconds")


async def test_an_endpoint_is_disabled_enabled_and_deleted(
    developers_client: ConsoleClient,
    store: Store,
    endpoint: NoticeEndpoint,
    receiver: ReceiverThread,
) -> None:
    path = page_of(endpoint)
    refused = await developers_client.posted(f"{path}/disable", {"reason": "x" * 501}, 400)
    assert "500" in refused.error_of("reason")
    page = await redirected(developers_client, f"{path}/disable", {"reason": "quiet"})
    assert "Endpoint disabled" in page.texts(STATUS)[-1]
    assert "quiet" in page.main
    assert not page.all(f".//a[@href='{path}/disable']")
    receiver.answer(404)
    page = await developers_client.posted(f"{path}/enable", status=422)
    assert "404" in page.texts(".//main//p[@role='alert']")[0]
    receiver.answer(204)
    page = await redirected(developers_client, f"{path}/enable", {})
    assert "the endpoint is ENABLED" in page.texts(STATUS)[-1]
    page = await redirected(developers_client, f"{path}/delete", {})
    assert "Endpoint and secret deleted" in page.texts(STATUS)[-1]
    with pytest.raises(NotFound):
        store.notice_endpoint(endpoint.id)


async def test_operators_see_all_accounts_and_filter_by_one(
    client: ConsoleClient,
    others_client: ConsoleClient,
    store: Store,
    endpoint: NoticeEndpoint,
    other_developer: Issued,
    receiver: ReceiverThread,
) -> None:
    account_id = other_developer[0].account.id
    created = await client.posted(LIST, {"url": receiver.url, "accountId": account_id})
    assert created.texts(SECRET)
    links = ".//main//tbody//a"
    listed = [link.get("href") for link in (await client.page(LIST)).all(links)]
    assert page_of(endpoint) in listed
    filtered = await client.page(LIST, accountId=endpoint.account_id)
    assert page_of(endpoint) in [link.get("href") for link in filtered.all(links)]
    assert account_id not in filtered.main
    assert endpoint.id not in (await others_client.page(LIST)).markup
    other = await others_client.get(LIST, accountId=endpoint.account_id)
    assert other.status_code == 403


async def test_an_endpoint_of_another_account_is_not_found(
    others_client: ConsoleClient, store: Store, endpoint: NoticeEndpoint
) -> None:
    form = FILLED | {"csrf": await others_client.csrf()}
    of_one = [(method, path) for method, path in ROUTES if "{endpoint_id}" in path]
    assert (len(ROUTES), len(of_one)) == (15, 12)
    for method, path in of_one:
        for endpoint_id in (endpoint.id, "ne_none", "<script>"):
            answer = await others_client.http.request(
                method,
                path.replace("{endpoint_id}", endpoint_id),
                data=form if method == "POST" else None,
            )
            assert answer.status_code == 404, f"{method} {path}"
            assert endpoint.url not in answer.text
    assert store.notice_endpoint(endpoint.id) == endpoint


async def test_a_read_only_key_changes_nothing_and_sees_no_forms(
    readers_client: ConsoleClient, store: Store, endpoint: NoticeEndpoint, receiver: ReceiverThread
) -> None:
    for method, path in ROUTES:
        target = path.replace("{endpoint_id}", endpoint.id)
        if method == "POST":
            answer = await readers_client.post(target, FILLED | {"url": receiver.url})
            assert answer.status_code == 403, path
        elif path.rpartition("/")[2] in ("notice-endpoints", "{endpoint_id}"):
            page = await readers_client.page(target)
            assert not page.all(".//main//form[@method='post']")
            assert endpoint.secret not in page.markup
        else:
            assert (await readers_client.get(target)).status_code == 403, path
    assert store.notice_endpoints().items == (endpoint,)
    assert receiver.webhooks == []


async def test_a_form_of_another_site_is_rejected(
    developers_client: ConsoleClient, store: Store, endpoint: NoticeEndpoint
) -> None:
    for method, path in ROUTES:
        if method == "POST":
            target = path.replace("{endpoint_id}", endpoint.id)
            answer = await developers_client.http.post(target, data=FILLED | {"csrf": "0" * 64})
            assert answer.status_code == 403, path
    assert store.notice_endpoints().items == (endpoint,)
