"""One look for all open pages, and to each what is new to it."""

import json
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI, Request

from app.api.doors import Doors
from app.api.problems import Problem
from app.api.progress_watch import WATCHERS_PER_KEY_MAX
from app.api.replay_progress import event_id
from app.console import health
from app.console.application import create_console
from app.console.live.broadcast import Broadcaster
from app.console.live.seats import COUNTERS, HEALTH, Seat
from app.console.live.stream import LiveStream
from app.domain.filters import ReplayFilter
from app.domain.model import NewReplay, Webhook, Window
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import text_of
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.anyio

EVERYTHING = ReplayFilter()


@pytest.fixture
def doors(application: FastAPI) -> Doors:
    found: Doors = application.state.doors
    return found


@pytest.fixture
def broadcaster(doors: Doors) -> Broadcaster:
    found: Broadcaster = create_console(doors).state.broadcaster
    return found


def changes(events: str) -> dict[str, Any]:
    """The parts of each thing that events tell of."""
    lines = [line for line in events.splitlines() if line.startswith("data: ")]
    told = [json.loads(line.removeprefix("data: ")) for line in lines]
    return {each["id"]: each["parts"] for each in told}


async def told(seat: Seat) -> dict[str, Any]:
    await until_async(seat.woken.is_set, "the page is told of something")
    return changes(seat.take())


async def test_who_shows_a_replay_is_told_when_it_changes_and_others_are_not(
    broadcaster: Broadcaster,
    store: Store,
    webhook: Webhook,
    others_webhook: Webhook,
    developer: Issued,
    other_developer: Issued,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)), None)
    seen = {replay.id: event_id(replay), f"job:{replay.id}": event_id(replay)}
    operators = Seat(None, EVERYTHING, dict(seen))
    owners = Seat(developer[0].account.id, EVERYTHING, dict(seen))
    strangers = Seat(other_developer[0].account.id, EVERYTHING, dict(seen))
    with (
        broadcaster.seat(operators, "key_1"),
        broadcaster.seat(owners, "key_2"),
        broadcaster.seat(strangers, "key_3"),
    ):
        store.pause_replay(replay.id)
        for each in (operators, owners):

            def has_both(seat: Seat = each) -> bool:
                return len(seat.pending) == 2

            await until_async(has_both, "row and page are told of")
        heard = changes(operators.take())
        assert heard == changes(owners.take())
        assert "PAUSED" in heard[replay.id]["state"]
        assert "Paused" in heard[f"job:{replay.id}"]["timeline"]
        # By now, the stranger's turn of the same look is over.
        assert not strangers.pending


async def test_a_page_that_shows_the_present_is_told_nothing(
    broadcaster: Broadcaster, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)), None)
    page = Seat(None, EVERYTHING, {replay.id: event_id(replay), COUNTERS: ""})
    with broadcaster.seat(page, "key_1"):
        assert set(await told(page)) == {COUNTERS}


async def test_numbers_are_those_of_the_pages_own_filter_and_account(
    broadcaster: Broadcaster, store: Store, webhook: Webhook, other_developer: Issued
) -> None:
    store.create_replay(NewReplay(webhook.id, Window(0, 1)), None)
    of_all = Seat(None, EVERYTHING, {COUNTERS: ""})
    of_another = Seat(None, ReplayFilter(webhook_id="wh_other"), {COUNTERS: ""})
    of_stranger = Seat(other_developer[0].account.id, EVERYTHING, {COUNTERS: ""})
    with (
        broadcaster.seat(of_all, "key_1"),
        broadcaster.seat(of_another, "key_1"),
        broadcaster.seat(of_stranger, "key_2"),
    ):
        assert (await told(of_all))[COUNTERS]["OPEN"] == "1"
        assert (await told(of_another))[COUNTERS]["OPEN"] == "0"
        assert (await told(of_stranger))[COUNTERS]["all"] == "0"


async def test_every_page_is_told_how_the_service_is(broadcaster: Broadcaster) -> None:
    page = Seat(None, EVERYTHING, {HEALTH: ""})
    with broadcaster.seat(page, "key_1"):
        health = (await told(page))[HEALTH]
    assert "answers" in health["database"]
    assert "does not answer" in health["log"]
    assert "0 at work" in health["workers"]


async def test_a_page_has_a_place_for_each_part_before_any_has_answered(
    broadcaster: Broadcaster, client: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE_S", 0.0)
    first = await client.page("/console/jobs")
    places = first.all(".//*[@data-live-id='health']/*")
    assert all("no answer yet" in text_of(place) for place in places)
    page = Seat(None, EVERYTHING, {HEALTH: ""})
    with broadcaster.seat(page, "key_1"):
        while "no answer yet" in (parts := (await told(page))[HEALTH])["database"]:
            pass  # the stream was quicker than the parts
    assert [place.get("data-live") for place in places] == list(parts)


async def test_a_stream_ends_once_its_reader_has_signed_out(
    doors: Doors, broadcaster: Broadcaster, store: Store, operator: Issued
) -> None:
    token = "x" * 43
    store.open_session(operator[0].id, token, 60.0)
    headers = [(b"host", b"console.test"), (b"cookie", f"rewind-console={token}".encode())]
    request = Request({"type": "http", "scheme": "http", "path": "/", "headers": headers})
    is_signed_in = partial(create_console(doors).state.gate.is_signed_in, request)
    page = Seat(None, EVERYTHING, {})
    stream = LiveStream(broadcaster, page, operator[0].id, is_signed_in, heartbeat_s=0.001)
    heard = aiter(stream.body_iterator)
    for _ in range(3):
        assert "event: clock" in await anext(heard)
    store.close_session(token)
    assert [each async for each in heard] == []


async def test_one_key_cannot_take_all_places(broadcaster: Broadcaster) -> None:
    seats = [Seat(None, EVERYTHING, {}) for _ in range(WATCHERS_PER_KEY_MAX)]
    held = [broadcaster.seat(seat, "key_1") for seat in seats]
    for each in held:
        each.__enter__()
    with (
        pytest.raises(Problem, match="close one"),
        broadcaster.seat(Seat(None, EVERYTHING, {}), "key_1"),
    ):
        pass
    with broadcaster.seat(Seat(None, EVERYTHING, {}), "key_2"):
        pass
    for each in held:
        each.__exit__(None, None, None)


async def test_nobody_looks_once_no_page_is_open(broadcaster: Broadcaster) -> None:
    with broadcaster.seat(Seat(None, EVERYTHING, {}), "key_1"):
        assert broadcaster._looking is not None
    await until_async(lambda: broadcaster._looking is None, "it stops looking")
