"""Moves, samples and failures of a replay, and lists of replays in several states."""

import pytest
from httpx import AsyncClient

from app.domain.model import (
    AwaitedRestore,
    Counts,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    Webhook,
    Window,
)
from app.domain.options import Source
from app.domain.windows import parse_time
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio

WINDOW = Window(1_000, 2_000)


@pytest.fixture
def replay(store: Store, webhook: Webhook) -> Replay:
    return store.create_replay(NewReplay(webhook.id, WINDOW))[0]


async def moves(client: AsyncClient, replay_id: str) -> list[tuple[str, str | None]]:
    answer = await client.get(f"/replays/{replay_id}/moves")
    assert answer.status_code == 200
    return [(move["event"], move["actor"]) for move in answer.json()["items"]]


async def test_a_move_has_actor_time_and_reason(
    client: AsyncClient, store: Store, replay: Replay
) -> None:
    assert store.claim("dead", 0)
    claim = store.claim("heir", 60)
    assert claim is not None
    answer = (await client.get(f"/replays/{replay.id}/moves")).json()
    assert [move["event"] for move in answer["items"]] == ["create", "claim", "take over"]
    taken_over = answer["items"][-1]
    assert parse_time(taken_over.pop("at")) >= (claim.replay.heartbeat_ms or 0)
    assert taken_over == {
        "event": "take over",
        "state": "STARTED",
        "leaseEpoch": 2,
        "actor": "heir",
        "reason": "no heartbeat from dead",
    }


@pytest.mark.parametrize("is_operator", [True, False])
async def test_the_actor_of_a_request_is_the_developers_key_or_operator(
    client: AsyncClient,
    developers_client: AsyncClient,
    developer: Issued,
    replay: Replay,
    is_operator: bool,
) -> None:
    acting = client if is_operator else developers_client
    actor = "operator" if is_operator else developer[0].id
    for verb in ("pause", "resume", "cancel"):
        assert (await acting.post(f"/replays/{replay.id}/{verb}")).status_code == 200
    expected = [("create", None), ("pause", actor), ("resume", actor), ("cancel", actor)]
    # No id of an operator's key is shown to developers.
    assert await moves(developers_client, replay.id) == expected


async def test_deleting_a_webhook_cancels_its_replay_for_the_same_actor(
    client: AsyncClient, replay: Replay
) -> None:
    assert (await client.delete(f"/webhooks/{replay.webhook_id}")).status_code == 204
    assert (await moves(client, replay.id))[-1] == ("cancel", "operator")


async def test_the_actor_of_a_restore_is_an_operator(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    awaits = AwaitedRestore(3, 500)
    new = NewReplay(webhook.id, WINDOW, origin="local", source=Source.ARCHIVE, awaits=awaits)
    replay, _ = store.create_replay(new)
    path = f"/replays/{replay.id}/restoration/missing"
    assert (await client.put(path, json={"missing": "21 November"})).status_code == 200
    assert (await moves(client, replay.id))[-1] == ("restore", "operator")


async def test_samples_have_the_progress_over_time(
    client: AsyncClient, store: Store, replay: Replay
) -> None:
    path = f"/replays/{replay.id}/samples"
    assert (await client.get(path)).json() == {"items": []}
    claim = store.claim("one", 60)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(3, 100, 200))
    assert store.checkpoint(claim.lease, 200, Counts(98, 1, 1), [])
    assert store.complete(claim.lease)
    first, last = (await client.get(path)).json()["items"]
    assert parse_time(first.pop("at")) <= parse_time(last.pop("at"))
    none = {"delivered": 0, "duplicates": 0, "failed": 0}
    assert first == {"checkpoint": 100, "counts": none}
    assert last == {"checkpoint": 200, "counts": {"delivered": 98, "duplicates": 1, "failed": 1}}


async def test_responses_that_were_not_stored_are_null(
    client: AsyncClient, store: Store, replay: Replay
) -> None:
    path = f"/replays/{replay.id}"
    assert (await client.get(path)).json()["statusCounts"] == {}
    claim = store.claim("one", 60)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(3, 100, 200))
    assert store.checkpoint(claim.lease, 150, Counts(50), [], None)
    assert (await client.get(path)).json()["statusCounts"] is None


@pytest.mark.parametrize("what", ["moves", "samples"])
async def test_moves_and_samples_of_another_account_are_not_found(
    developers_client: AsyncClient, others_client: AsyncClient, replay: Replay, what: str
) -> None:
    path = f"/replays/{replay.id}/{what}"
    assert (await developers_client.get(path)).status_code == 200
    answer = await others_client.get(path)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:rewind:problem:not-found")


async def test_replays_in_several_states_are_listed_together(
    client: AsyncClient, store: Store, replay: Replay, webhook: Webhook
) -> None:
    others = []
    for _ in range(2):
        other = store.create_webhook(
            NewWebhook("https://example.com/", "", new_secret(), webhook.account_id)
        )
        others.append(store.create_replay(NewReplay(other.id, WINDOW))[0].id)
    store.pause_replay(others[0])
    store.cancel_replay(others[1])

    async def listed(**parameters: str | list[str]) -> set[str]:
        answer = await client.get("/replays", params=parameters)
        return {item["id"] for item in answer.json()["items"]}

    assert await listed(state="PAUSED") == {others[0]}
    assert await listed(state=["OPEN", "PAUSED"]) == {replay.id, others[0]}
    assert await listed(state=["OPEN", "PAUSED"], webhookId=webhook.id) == {replay.id}
    assert await listed() == {replay.id, *others}
    assert await listed(withFailures="true") == set()
    assert await listed(reason="recovery") == set()
    assert await listed(reason="request", state="PAUSED") == {others[0]}
    answer = await client.get("/replays", params={"state": "CANCELLED"})
    assert [item["result"] for item in answer.json()["items"]] == ["cancelled"]
    refused = await client.get("/replays", params={"state": ["OPEN", "LOST"]})
    assert refused.status_code == 400
    problem = refused.json()
    assert (problem["field"], problem["value"]) == ("state[1]", "LOST")
    assert "PAUSED" in problem["allowed"]
