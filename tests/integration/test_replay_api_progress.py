"""Progress streams of a real server while the store changes."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.domain.accounts import Scope
from app.domain.model import Counts, NewReplay, NewWebhook, OffsetRange, Replay, Window
from app.services.progress_watch import STREAMS_PER_KEY_MAX
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.api_process import ApiProcess

pytestmark = pytest.mark.long


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[ApiProcess]:
    given = Settings(data_dir=folder, bootstrap_servers="127.0.0.1:1", **settings)  # type: ignore[arg-type]
    with ApiProcess(given, folder) as api:
        yield api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with running(tmp_path_factory.mktemp("api")) as api:
        yield api


def account_of(api: ApiProcess, name: str) -> str:
    keys = api.store.keys()
    return next(key.account.id for key in keys if key.account.name == name)


def queued(api: ApiProcess, account_id: str = "acc_default") -> Replay:
    new = NewWebhook("https://example.com/hooks", "", new_secret(), account_id)
    webhook = api.store.create_webhook(new)
    return api.store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))[0]


@dataclass(frozen=True)
class Event:
    name: str
    id: str
    document: dict[str, Any]


@contextmanager
def watched(
    client: httpx.Client, replay_id: str, last_event_id: str | None = None
) -> Iterator[Iterator[Event]]:
    """The events of a replay's stream as they come."""
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    with client.stream("GET", f"/replays/{replay_id}/progress", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield events(answer.iter_lines())


def events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "event" in fields:
                yield Event(fields["event"], fields["id"], json.loads(fields["data"]))
            fields = {}


def wait_for(stream: Iterator[Event], state: str) -> Event:
    return next(event for event in stream if event.document["state"] == state)


def test_a_stream_has_every_state_and_ends_with_its_replay(
    database_url: str, tmp_path: Path
) -> None:
    with running(tmp_path, database=database_url) as api:
        follow_from_its_first_state_to_its_last(api)


def follow_from_its_first_state_to_its_last(api: ApiProcess) -> None:
    replay = queued(api)
    with watched(api.client(), replay.id) as stream:
        first = next(stream)
        assert (first.name, first.document["id"]) == ("progress", replay.id)
        assert first.document["state"] == "OPEN"

        claim = api.store.claim("worker-1", 60.0)
        assert claim is not None
        assert wait_for(stream, "STARTED").document["worker"] == "worker-1"

        api.store.begin_delivery(claim.lease, OffsetRange(3, 100, 500))
        api.store.checkpoint(claim.lease, 300, Counts(delivered=20), ())
        ongoing = wait_for(stream, "ONGOING")
        while ongoing.document["checkpoint"] != 300:
            ongoing = next(stream)
        assert ongoing.document["counts"]["delivered"] == 20
        assert ongoing.document["progress"] == 0.5

        api.store.checkpoint(claim.lease, 500, Counts(delivered=40), ())
        api.store.complete(claim.lease)
        completed = wait_for(stream, "COMPLETED")
        assert completed.name == "progress"
        (end,) = stream
    assert (end.name, end.id, end.document["state"]) == ("end", completed.id, "COMPLETED")


def test_a_reconnecting_client_gets_only_newer_states(api: ApiProcess) -> None:
    replay, client = queued(api), api.client()
    with watched(client, replay.id) as stream:
        seen = next(stream)
    api.store.pause_replay(replay.id)
    with watched(client, replay.id, seen.id) as stream:
        paused = next(stream)
        assert (paused.document["state"], paused.id != seen.id) == ("PAUSED", True)
    with watched(client, replay.id, paused.id) as stream:
        api.store.cancel_replay(replay.id)
        assert [(event.name, event.document["state"]) for event in stream] == [
            ("progress", "CANCELLED"),
            ("end", "CANCELLED"),
        ]


def test_a_finished_replay_is_sent_once(api: ApiProcess) -> None:
    replay, client = queued(api), api.client()
    api.store.cancel_replay(replay.id)
    with watched(client, replay.id) as stream:
        names = [(event.name, event.id) for event in stream]
    assert [name for name, _ in names] == ["progress", "end"]
    again = client.get(f"/replays/{replay.id}/progress", headers={"last-event-id": names[-1][1]})
    assert (again.status_code, again.content) == (204, b"")


def test_a_stream_of_another_account_is_not_found(api: ApiProcess) -> None:
    developer = api.client(Scope.DEVELOPER, "acme")
    assert developer.get(f"/replays/{queued(api).id}/progress").status_code == 404
    acme = account_of(api, "acme")
    with watched(developer, queued(api, acme).id) as stream:
        assert next(stream).document["accountId"] == acme
    unauthenticated = httpx.get(f"{api.url}/replays/{queued(api).id}/progress", timeout=DEADLINE_S)
    assert unauthenticated.status_code == 401


def test_streams_per_key_are_limited_and_freed_on_disconnect(
    api: ApiProcess,
) -> None:
    replay, client = queued(api), api.client()
    with ExitStack() as streams:
        # Kept in a list: an unreferenced stream is closed.
        kept = [
            streams.enter_context(watched(client, replay.id)) for _ in range(STREAMS_PER_KEY_MAX)
        ]
        assert [next(stream).name for stream in kept] == ["progress"] * len(kept)
        refused = client.get(f"/replays/{replay.id}/progress")
        assert refused.status_code == 429
        assert refused.json()["type"] == "urn:rewind:problem:too-many-streams"
        assert int(refused.headers["retry-after"]) > 0
        with watched(api.client(account="another"), replay.id) as stream:
            assert next(stream).name == "progress"

    def has_a_place() -> bool:
        with client.stream("GET", f"/replays/{replay.id}/progress") as answer:
            return answer.status_code == 200

    until(has_a_place, "the places of those that left")


def test_stopping_the_server_ends_its_streams(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        stop_amid_a_stream(api)


def stop_amid_a_stream(api: ApiProcess) -> None:
    replay = queued(api)
    left: list[Event] = []
    with watched(api.client(), replay.id) as stream:
        assert next(stream).document["state"] == "OPEN"
        rest = threading.Thread(target=lambda: left.extend(stream))
        rest.start()
        assert api.process.stop() == 0
        rest.join(60)
    assert not rest.is_alive()
    assert left == []
    # What uvicorn says of requests that it had to cut off at the end of the grace.
    assert "Cancel" not in api.process.output
    assert "Traceback" not in api.process.output
