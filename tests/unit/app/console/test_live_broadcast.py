"""Updates of open pages: one query for all of them, and only changes for each."""

import json
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI, Request

from app.console import health
from app.console.application import create_console
from app.console.live_broadcast import Broadcaster
from app.console.live_pages import COUNTERS, HEALTH, OpenPage
from app.console.live_stream import LiveStream
from app.domain.model import NewReplay, ReplayFilter, Webhook, Window
from app.services.errors import TooManyStreams
from app.services.progress_watch import STREAMS_PER_KEY_MAX, version_of
from app.services.services import Services
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import text_of
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.anyio

EVERYTHING = ReplayFilter()


@pytest.fixture
def services(application: FastAPI) -> Services:
    found: Services = application.state.services
    return found


@pytest.fixture
def broadcaster(services: Services) -> Broadcaster:
    found: Broadcaster = create_console(services).state.broadcaster
    return found


def changes(events: str) -> dict[str, Any]:
    """Return the parts of each item in events."""
    lines = [line for line in events.splitlines() if line.startswith("data: ")]
    updates = [json.loads(line.removeprefix("data: ")) for line in lines]
    return {each["id"]: each["parts"] for each in updates}


async def next_changes(page: OpenPage) -> dict[str, Any]:
    await until_async(page.has_updates.is_set, "the page has updates")
    return changes(page.drain_updates())


async def test_pages_that_show_a_replay_get_its_changes_if_the_account_may_see_it(
    broadcaster: Broadcaster,
    store: Store,
    webhook: Webhook,
    others_webhook: Webhook,
    developer: Issued,
    other_developer: Issued,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)), None)
    versions = {replay.id: version_of(replay), f"job:{replay.id}": version_of(replay)}
    operators = OpenPage(None, EVERYTHING, dict(versions))
    owners = OpenPage(developer[0].account.id, EVERYTHING, dict(versions))
    others = OpenPage(other_developer[0].account.id, EVERYTHING, dict(versions))
    with (
        broadcaster.register(operators, "key_1"),
        broadcaster.register(owners, "key_2"),
        broadcaster.register(others, "key_3"),
    ):
        store.pause_replay(replay.id)
        for each in (operators, owners):

            def has_both(page: OpenPage = each) -> bool:
                return len(page.pending) == 2

            await until_async(has_both, "row and page have updates")
        received = changes(operators.drain_updates())
        assert received == changes(owners.drain_updates())
        assert "PAUSED" in received[replay.id]["state"]
        assert "Paused" in received[f"job:{replay.id}"]["timeline"]
        # The same tick has processed the other account's page as well.
        assert not others.pending


async def test_an_up_to_date_page_gets_no_updates(
    broadcaster: Broadcaster, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)), None)
    page = OpenPage(None, EVERYTHING, {replay.id: version_of(replay), COUNTERS: ""})
    with broadcaster.register(page, "key_1"):
        assert set(await next_changes(page)) == {COUNTERS}


async def test_counters_have_the_filter_and_the_account_of_the_page(
    broadcaster: Broadcaster, store: Store, webhook: Webhook, other_developer: Issued
) -> None:
    store.create_replay(NewReplay(webhook.id, Window(0, 1)), None)
    of_all = OpenPage(None, EVERYTHING, {COUNTERS: ""})
    of_other_filter = OpenPage(None, ReplayFilter(webhook_id="wh_other"), {COUNTERS: ""})
    of_other_account = OpenPage(other_developer[0].account.id, EVERYTHING, {COUNTERS: ""})
    with (
        broadcaster.register(of_all, "key_1"),
        broadcaster.register(of_other_filter, "key_1"),
        broadcaster.register(of_other_account, "key_2"),
    ):
        assert (await next_changes(of_all))[COUNTERS]["OPEN"] == "1"
        assert (await next_changes(of_other_filter))[COUNTERS]["OPEN"] == "0"
        assert (await next_changes(of_other_account))[COUNTERS]["all"] == "0"


async def test_every_page_gets_the_health(broadcaster: Broadcaster) -> None:
    page = OpenPage(None, EVERYTHING, {HEALTH: ""})
    health: dict[str, str] = {}
    words = {"database": ">up<", "log": "unreachable", "workers": "0 running"}

    def has_all() -> bool:
        # A slow check shows its component as unknown first.
        health.update(changes(page.drain_updates()).get(HEALTH, {}))
        return all(text in health.get(name, "") for name, text in words.items())

    with broadcaster.register(page, "key_1"):
        await until_async(has_all, "each component is shown")


async def test_a_page_has_an_element_for_each_component_before_the_first_check(
    broadcaster: Broadcaster, client: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PAGE_WAIT_S", 0.0)
    first = await client.page("/console/jobs")
    elements = first.all(".//*[@data-live-id='health']/*")
    assert all("checking" in text_of(each) for each in elements)
    page = OpenPage(None, EVERYTHING, {HEALTH: ""})
    with broadcaster.register(page, "key_1"):
        while "checking" in (parts := (await next_changes(page))[HEALTH])["database"]:
            pass  # the stream was faster than the checks
    assert [each.get("data-live") for each in elements] == list(parts)


async def test_a_stream_ends_after_sign_out(
    services: Services, broadcaster: Broadcaster, store: Store, operator: Issued
) -> None:
    token = "x" * 43
    store.open_session(operator[0].id, token, 60.0)
    headers = [(b"host", b"console.test"), (b"cookie", f"rewind-console={token}".encode())]
    request = Request({"type": "http", "scheme": "http", "path": "/", "headers": headers})
    is_signed_in = partial(create_console(services).state.sessions.is_signed_in, request)
    page = OpenPage(None, EVERYTHING, {})
    stream = LiveStream(broadcaster, page, operator[0].id, is_signed_in, heartbeat_s=0.001)
    events = aiter(stream.body_iterator)
    for _ in range(3):
        assert "event: clock" in await anext(events)
    store.close_session(token)
    assert [each async for each in events] == []


async def test_the_open_pages_of_a_key_are_limited(broadcaster: Broadcaster) -> None:
    pages = [OpenPage(None, EVERYTHING, {}) for _ in range(STREAMS_PER_KEY_MAX)]
    contexts = [broadcaster.register(page, "key_1") for page in pages]
    for each in contexts:
        each.__enter__()
    with (
        pytest.raises(TooManyStreams, match="close one"),
        broadcaster.register(OpenPage(None, EVERYTHING, {}), "key_1"),
    ):
        pass
    with broadcaster.register(OpenPage(None, EVERYTHING, {}), "key_2"):
        pass
    for each in contexts:
        each.__exit__(None, None, None)


async def test_the_broadcaster_is_idle_without_open_pages(broadcaster: Broadcaster) -> None:
    with broadcaster.register(OpenPage(None, EVERYTHING, {}), "key_1"):
        assert broadcaster._ticker is not None
    await until_async(lambda: broadcaster._ticker is None, "the ticker has ended")
