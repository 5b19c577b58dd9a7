"""Replays of another data centre; the log of this one is down."""

import time
from typing import Any

import pytest
from httpx import AsyncClient

from app.domain.model import Counts, Failure, NewReplay, OffsetRange, Replay, Webhook, Window
from app.domain.options import ReplayOptions
from app.domain.states import ReplayState
from app.domain.windows import MINUTE_MS, format_time
from app.http.request_bodies import ReplayRequest
from app.services.replays import fingerprint
from app.store import Store

pytestmark = pytest.mark.anyio

NOW_MS = time.time_ns() // 1_000_000
WINDOW = Window(NOW_MS - 60 * MINUTE_MS, NOW_MS - 30 * MINUTE_MS)
FAILURE = Failure(offset=120, event_id="evt_1", attempts=6, status=503, reason="down")


@pytest.fixture
def elsewhere(store: Store, webhook: Webhook) -> Replay:
    """A replay of data centre "b"; the application under test is in "local"."""
    return store.create_replay(NewReplay(webhook.id, WINDOW, origin="b"))[0]


def end_with_a_failure(store: Store, origin: str) -> None:
    claim = store.claim("worker", 60, origin)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(0, 100, 200))
    assert store.checkpoint(claim.lease, 200, Counts(delivered=99, failed=1), [FAILURE])
    assert store.complete(claim.lease)


async def read_replay(client: AsyncClient, replay: Replay) -> dict[str, Any]:
    answer = await client.get(f"/replays/{replay.id}")
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    return document


async def test_a_replay_has_its_origin(client: AsyncClient, elsewhere: Replay) -> None:
    assert (await read_replay(client, elsewhere))["origin"] == "b"
    (listed,) = (await client.get("/replays")).json()["items"]
    assert listed["origin"] == "b"


async def test_a_replay_without_an_origin_has_null(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    assert (await read_replay(client, replay))["origin"] is None


async def test_a_replay_can_be_paused_and_cancelled_from_any_data_centre(
    client: AsyncClient, store: Store, elsewhere: Replay
) -> None:
    for verb, state in (("pause", "PAUSED"), ("resume", "OPEN"), ("cancel", "CANCELLED")):
        answer = await client.post(f"/replays/{elsewhere.id}/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state)
        assert answer.json()["origin"] == "b"
    assert store.replay(elsewhere.id).state is ReplayState.CANCELLED


async def test_a_retry_keeps_the_origin_and_does_not_read_the_local_log(
    client: AsyncClient, store: Store, elsewhere: Replay
) -> None:
    end_with_a_failure(store, "b")
    answer = await client.post(f"/replays/{elsewhere.id}/retry")
    assert answer.status_code == 202
    assert (answer.json()["origin"], answer.json()["retryOf"]) == ("b", elsewhere.id)


@pytest.mark.parametrize("origin", ["local", ""])
async def test_a_retry_of_a_local_replay_reads_the_log(
    client: AsyncClient, store: Store, webhook: Webhook, origin: str
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, origin=origin))
    end_with_a_failure(store, origin)
    answer = await client.post(f"/replays/{replay.id}/retry")
    assert (answer.status_code, answer.json()["unavailable"]) == (503, ["log"])


async def test_an_idempotency_key_works_across_data_centres(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    body = {
        "webhookId": webhook.id,
        "from": format_time(WINDOW.from_ms),
        "to": format_time(WINDOW.to_ms),
        "batchSize": 5,
    }
    new = ReplayRequest.model_validate(body).new_replay
    assert new.options == ReplayOptions(batch_size=5)
    there = NewReplay(new.webhook_id, new.window, new.options, origin="b")
    replay, _ = store.create_replay(there, fingerprint("outage-7", there))
    answer = await client.post("/replays", json=body, headers={"Idempotency-Key": "outage-7"})
    assert answer.status_code == 202
    assert (answer.json()["id"], answer.json()["origin"]) == (replay.id, "b")


async def test_an_active_replay_of_another_data_centre_counts(
    client: AsyncClient, store: Store, elsewhere: Replay
) -> None:
    end_with_a_failure(store, "b")
    again, _ = store.create_replay(NewReplay(elsewhere.webhook_id, WINDOW, origin="local"))
    answer = await client.post(f"/replays/{elsewhere.id}/retry")
    assert (answer.status_code, answer.json()["replayId"]) == (409, again.id)


async def test_metrics_name_the_data_centre_of_the_oldest_replay(
    client: AsyncClient, store: Store, elsewhere: Replay
) -> None:
    metrics = (await client.get("/metrics")).text
    assert 'rewind_replays_oldest_open_seconds{origin="local"} 0.0' in metrics
    assert 'rewind_replays_oldest_open_seconds{origin="b"}' in metrics
    assert store.claim("dead", 0, "b") is not None
    metrics = (await client.get("/metrics")).text
    assert 'rewind_replays_late_heartbeats{origin="local"} 0.0' in metrics
    assert 'rewind_replays_late_heartbeats{origin="b"} 1.0' in metrics
