import json
import time
from dataclasses import replace

import pytest
from httpx import AsyncClient

from app.api.models.replays import ReplayDocument
from app.domain.model import (
    Counts,
    Failure,
    IdempotencyKey,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Webhook,
    Window,
)
from app.domain.options import NoticeStyle, Only, ReplayOptions
from app.domain.states import ReplayState
from app.domain.windows import DAY_MS, MINUTE_MS, format_time, parse_time
from app.services.replays import fingerprint
from app.store import Store
from app.webhooks.signing import new_secret

pytestmark = pytest.mark.anyio

NOW_MS = time.time_ns() // 1_000_000
FROM_MS = NOW_MS - 60 * MINUTE_MS
TO_MS = NOW_MS - 30 * MINUTE_MS


def asked(webhook_id: str, from_ms: int = FROM_MS, to_ms: int = TO_MS) -> dict[str, object]:
    return {"webhookId": webhook_id, "from": format_time(from_ms), "to": format_time(to_ms)}


async def test_an_ongoing_replay_has_all_members(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    claim = store.claim("worker-1", lease_s=60)
    assert claim is not None
    store.begin_delivery(claim.lease, OffsetRange(partition=3, start=100, end=500))
    last_ms = parse_time("2026-11-22T09:00:00.000Z")
    failure = Failure(120, "evt_1", 6, 503, "down", 32, "no", last_ms)
    statuses = {"200": 40, "503": 1}
    store.checkpoint(claim.lease, 200, Counts(40, 7, 1), [failure], statuses)

    document = (await client.get(f"/replays/{replay.id}")).json()

    assert document["state"] == "ONGOING"
    assert document["webhookId"] == webhook.id
    assert parse_time(document["from"]) == FROM_MS
    assert parse_time(document["to"]) == TO_MS
    assert (document["partition"], document["startOffset"], document["endOffset"]) == (3, 100, 500)
    assert document["checkpoint"] == 200
    assert document["counts"] == {"delivered": 40, "duplicates": 7, "failed": 1}
    assert document["statusCounts"] == {"200": 40, "503": 1}
    assert document["progress"] == 0.25
    assert document["worker"] == "worker-1"
    assert document["leaseEpoch"] == 1
    assert document["heartbeatAt"] is not None
    assert document["finishedAt"] is None
    assert document["error"] is None
    failures = (await client.get(f"/replays/{replay.id}/failures")).json()
    assert failures == {
        "items": [
            {
                "offset": 120,
                "eventId": "evt_1",
                "attempts": 6,
                "status": 503,
                "reason": "down",
                "durationMs": 32,
                "response": "no",
                "lastAttemptAt": "2026-11-22T09:00:00.000Z",
            }
        ],
        "nextCursor": None,
    }


async def test_rate_and_eta_are_rounded_to_a_tenth(store: Store, webhook: Webhook) -> None:
    store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    claim = store.claim("worker-1", lease_s=60)
    assert claim is not None
    half_way = replace(
        claim.replay,
        state=ReplayState.ONGOING,
        started_ms=0,
        idle_ms=0,
        offsets=OffsetRange(0, 0, 70),
        checkpoint=31,
        counts=Counts(delivered=10, duplicates=0, failed=0),
    )
    document = ReplayDocument.of(half_way, now_ms=3_000)
    assert (document.events_per_second, document.eta_seconds) == (3.3, 3.8)


async def test_a_waiting_replay_has_no_offsets_yet(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    document = (await client.get(f"/replays/{replay.id}")).json()

    assert document["state"] == "OPEN"
    assert document["progress"] == 0
    for name in ("partition", "startOffset", "checkpoint", "eventsPerSecond", "etaSeconds"):
        assert document[name] is None


async def test_a_replay_is_paused_resumed_and_cancelled(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))

    for verb, state in (("pause", "PAUSED"), ("resume", "OPEN"), ("cancel", "CANCELLED")):
        answer = await client.post(f"/replays/{replay.id}/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state)
        assert store.replay(replay.id).state == state
    assert answer.json()["finishedAt"] is not None


@pytest.mark.parametrize(
    ("done", "verb", "state", "allowed"),
    [
        ([], "resume", "OPEN", "PAUSED, FAILED"),
        (["pause"], "pause", "PAUSED", "OPEN, STARTED, ONGOING"),
        (["cancel"], "pause", "CANCELLED", "OPEN, STARTED, ONGOING"),
        (["cancel"], "resume", "CANCELLED", "PAUSED, FAILED"),
        (["cancel"], "cancel", "CANCELLED", "OPEN, STARTED, ONGOING, PAUSED"),
    ],
)
async def test_an_illegal_move_is_rejected_with_the_allowed_states(
    client: AsyncClient,
    store: Store,
    webhook: Webhook,
    done: list[str],
    verb: str,
    state: str,
    allowed: str,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    for before in done:
        await client.post(f"/replays/{replay.id}/{before}")

    answer = await client.post(f"/replays/{replay.id}/{verb}")
    problem = answer.json()
    assert answer.status_code == 409
    assert problem["type"] == "urn:rewind:problem:illegal-move"
    assert (problem["field"], problem["value"], problem["allowed"]) == ("state", state, allowed)
    assert store.replay(replay.id).state == state


async def test_a_replay_shows_its_options_and_where_it_comes_from(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    options = ReplayOptions(
        event_types=("follow.*",),
        only=Only.FAILED,
        max_events_per_second=7,
        max_in_flight=1,
        batch_size=9,
        target_url="https://example.com/elsewhere",
    )
    new = NewReplay(webhook.id, Window(FROM_MS, TO_MS), options, notice=NoticeStyle.TWITTER)
    replay, _ = store.create_replay(new)

    document = (await client.get(f"/replays/{replay.id}")).json()
    assert document["accountId"] == webhook.account_id
    assert document["options"] == {
        "eventTypes": ["follow.*"],
        "only": "failed",
        "maxEventsPerSecond": 7,
        "maxInFlight": 1,
        "batchSize": 9,
        "targetUrl": "https://example.com/elsewhere",
    }
    assert (document["notice"], document["retryOf"]) == ("twitter", None)


async def test_a_replay_says_what_it_waits_for(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    claim = store.claim("worker-1", lease_s=60)
    assert claim is not None
    store.postpone(claim.lease, "the log does not answer", 60.0)
    document = (await client.get(f"/replays/{replay.id}")).json()
    assert (document["state"], document["waitingFor"]) == ("OPEN", "the log does not answer")
    assert document["claimsWithoutProgress"] == document["claimsInVain"] == 0


@pytest.mark.parametrize(
    ("member", "value", "field"),
    [
        ("eventTypes", "follow.*", "eventTypes"),
        ("eventTypes", None, "eventTypes"),
        ("eventTypes", ["a", ""], "eventTypes[1]"),
        ("eventTypes", ["a b"], "eventTypes[0]"),
        ("eventTypes", ["x" * 257], "eventTypes[0]"),
        ("eventTypes", ["x"] * 51, "eventTypes"),
        ("only", "some", "only"),
        ("maxEventsPerSecond", 0, "maxEventsPerSecond"),
        ("maxEventsPerSecond", 1_000_001, "maxEventsPerSecond"),
        ("maxEventsPerSecond", "10", "maxEventsPerSecond"),
        ("maxEventsPerSecond", 1.5, "maxEventsPerSecond"),
        ("maxInFlight", 0, "maxInFlight"),
        ("maxInFlight", 1_025, "maxInFlight"),
        ("maxInFlight", True, "maxInFlight"),
        ("batchSize", 0, "batchSize"),
        ("batchSize", 1_001, "batchSize"),
        ("batchSize", None, "batchSize"),
        ("targetUrl", 7, "targetUrl"),
        ("dryRun", "yes", "dryRun"),
    ],
)
async def test_an_option_out_of_range_is_rejected(
    client: AsyncClient, store: Store, webhook: Webhook, member: str, value: object, field: str
) -> None:
    answer = await client.post("/replays", json=asked(webhook.id) | {member: value})
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert answer.json()["allowed"]
    assert store.replays().items == ()


async def test_the_openapi_document_has_the_range_of_every_option(client: AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    options = document["components"]["schemas"]["ReplayRequest"]["properties"]
    pace, batch, types = (
        options[name] for name in ("maxEventsPerSecond", "batchSize", "eventTypes")
    )
    assert (pace["minimum"], pace["maximum"], pace["default"]) == (1, 1_000_000, 2_500)
    assert (batch["minimum"], batch["maximum"], batch["default"]) == (1, 1_000, 1)
    assert (types["maxItems"], bool(types["items"]["pattern"])) == (50, True)
    in_flight = options["maxInFlight"]["anyOf"][0]
    assert (in_flight["minimum"], in_flight["maximum"]) == (1, 1_024)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_target_url_that_is_not_allowed_is_rejected(
    client: AsyncClient, webhook: Webhook, dry_run: bool
) -> None:
    # Link-local, where a cloud's metadata lies.
    asks = {"targetUrl": "https://169.254.169.254/latest", "dryRun": dry_run}
    answer = await client.post("/replays", json=asked(webhook.id) | asks)
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:rewind:problem:url-refused"
    assert answer.json()["field"].startswith("targetUrl")


async def test_a_replay_of_a_disabled_webhook_is_rejected(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    store.disable_webhook(webhook.id, "the receiver answered 410")
    answer = await client.post("/replays", json=asked(webhook.id))
    problem = answer.json()
    assert answer.status_code == 409
    assert problem["type"] == "urn:rewind:problem:webhook-not-enabled"
    assert (problem["field"], problem["value"]) == ("status", "DISABLED")
    assert "the receiver answered 410" in problem["detail"]


async def test_a_dry_run_says_so_when_the_log_is_down(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    answer = await client.post("/replays", json=asked(webhook.id) | {"dryRun": True})
    assert (answer.status_code, answer.json()["unavailable"]) == (503, ["log"])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/failures"),
        ("GET", "/progress"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
    ],
)
async def test_a_replay_of_another_account_is_not_found(
    developers_client: AsyncClient,
    others_client: AsyncClient,
    store: Store,
    webhook: Webhook,
    method: str,
    path: str,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    answer = await others_client.request(method, f"/replays/{replay.id}{path}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:rewind:problem:not-found")
    assert store.replay(replay.id).state == "OPEN"
    assert (await developers_client.get(f"/replays/{replay.id}")).status_code == 200


async def test_lists_are_limited_to_the_account_of_the_key(
    client: AsyncClient,
    developers_client: AsyncClient,
    others_client: AsyncClient,
    store: Store,
    webhook: Webhook,
) -> None:
    store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
    for asker, seen in ((client, 1), (developers_client, 1), (others_client, 0)):
        assert len((await asker.get("/replays")).json()["items"]) == seen


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_webhook_of_another_account_cannot_be_replayed(
    others_client: AsyncClient, webhook: Webhook, dry_run: bool
) -> None:
    answer = await others_client.post("/replays", json=asked(webhook.id) | {"dryRun": dry_run})
    assert answer.status_code == 404
    assert webhook.id in answer.json()["detail"]


async def test_replays_are_listed_by_webhook_and_state(client: AsyncClient, store: Store) -> None:
    ids = {}
    for name in ("a", "b"):
        webhook = store.create_webhook(NewWebhook("https://example.com/", name, new_secret()))
        replay, _ = store.create_replay(NewReplay(webhook.id, Window(FROM_MS, TO_MS)))
        ids[name] = (webhook.id, replay.id)
    store.cancel_replay(ids["b"][1])

    async def listed(**params: str) -> set[str]:
        answer = await client.get("/replays", params=params)
        return {item["id"] for item in answer.json()["items"]}

    assert await listed() == {ids["a"][1], ids["b"][1]}
    assert await listed(webhookId=ids["a"][0]) == {ids["a"][1]}
    assert await listed(state="CANCELLED") == {ids["b"][1]}
    assert await listed(webhookId=ids["a"][0], state="CANCELLED") == set()
    assert (await client.get("/replays", params={"state": "LOST"})).json()["field"] == "state[0]"


@pytest.mark.parametrize("path", ["/replays/rpl_none", "/replays/rpl_none/failures"])
async def test_an_unknown_replay_is_not_found(client: AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404
    assert (await client.post("/replays/rpl_none/cancel")).status_code == 404


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "field", "words"),
    [
        (NOW_MS, NOW_MS, "to", "empty"),
        (TO_MS, FROM_MS, "to", "reversed"),
        (NOW_MS - 1, NOW_MS + DAY_MS, "to", "future"),
        (NOW_MS - 6 * DAY_MS, NOW_MS - 1, "to", "longer than 5 days"),
        (NOW_MS - 6 * DAY_MS, NOW_MS - 5 * DAY_MS, "from", "before the retained history"),
    ],
    ids=["empty", "reversed", "future", "too-long", "too-old"],
)
async def test_an_invalid_window_is_rejected(
    client: AsyncClient, webhook: Webhook, from_ms: int, to_ms: int, field: str, words: str
) -> None:
    answer = await client.post("/replays", json=asked(webhook.id, from_ms, to_ms))

    problem = answer.json()
    assert answer.status_code == 400
    assert problem["type"] == "urn:rewind:problem:window-refused"
    assert problem["field"] == field
    assert problem["value"] == format_time(from_ms if field == "from" else to_ms)
    assert problem["allowed"]
    assert words in problem["detail"]


@pytest.mark.parametrize("value", ["yesterday", "2026-11-21T08:00:00", 202611210800, None])
async def test_an_invalid_time_is_rejected(
    client: AsyncClient, webhook: Webhook, value: object
) -> None:
    answer = await client.post("/replays", json=asked(webhook.id) | {"from": value})
    assert answer.status_code == 400
    assert answer.json()["field"] == "from"
    assert "yyyymmddhhmm" in answer.json()["allowed"]


async def test_every_error_in_a_body_is_listed(client: AsyncClient) -> None:
    answer = await client.post("/replays", json={"from": "then", "too": "now"})
    assert answer.status_code == 400
    assert {error["field"] for error in answer.json()["errors"]} == {
        "webhookId",
        "from",
        "to",
        "too",
    }


@pytest.mark.parametrize("value", ["", "x" * 257, "\ud800"])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_invalid_webhook_id_is_rejected(
    client: AsyncClient, value: str, dry_run: bool
) -> None:
    body = json.dumps({**asked(value), "dryRun": dry_run})
    answer = await client.post(
        "/replays", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["field"]) == (400, "webhookId")


async def test_a_replay_of_an_unknown_webhook_is_not_found(client: AsyncClient) -> None:
    answer = await client.post("/replays", json=asked("wh_none"))
    assert answer.status_code == 404
    assert "wh_none" in answer.json()["detail"]


async def test_no_replay_is_created_while_the_log_is_down(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    answer = await client.post("/replays", json=asked(webhook.id))
    assert answer.status_code == 503
    assert answer.json()["unavailable"] == ["log"]
    assert answer.headers["retry-after"] == "1"
    assert store.replays().items == ()


async def test_a_repeated_idempotency_key_returns_its_replay_even_if_the_window_is_too_old(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    window = Window(NOW_MS - 7 * DAY_MS, NOW_MS - 6 * DAY_MS)
    fingerprint = f"{webhook.id}\n{window.from_ms}\n{window.to_ms}".encode()
    replay, _ = store.create_replay(
        NewReplay(webhook.id, window), IdempotencyKey.of("outage-7", fingerprint)
    )

    answer = await client.post(
        "/replays",
        json=asked(webhook.id, window.from_ms, window.to_ms),
        headers={"Idempotency-Key": "outage-7"},
    )
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/replays/{replay.id}"
    assert answer.json()["id"] == replay.id


async def test_an_idempotency_key_of_a_different_request_is_rejected(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    store.create_replay(
        NewReplay(webhook.id, Window(1, 2)), IdempotencyKey.of("outage-7", b"another")
    )
    answer = await client.post(
        "/replays", json=asked(webhook.id), headers={"Idempotency-Key": "outage-7"}
    )
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:rewind:problem:idempotency-key-reused"


async def test_the_fingerprint_includes_options_and_ignores_spelled_out_defaults(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    new = NewReplay(webhook.id, Window(FROM_MS, TO_MS), ReplayOptions(batch_size=5))
    replay, _ = store.create_replay(new, fingerprint("outage-7", new))

    async def ask(**options: object) -> tuple[int, str | None]:
        answer = await client.post(
            "/replays",
            json=asked(webhook.id) | options,
            headers={"Idempotency-Key": "outage-7"},
        )
        return answer.status_code, answer.json().get("id")

    assert await ask(batchSize=5) == (202, replay.id)
    assert await ask(batchSize=5, only="all", eventTypes=[], maxInFlight=None) == (202, replay.id)
    assert await ask() == (422, None)
    assert await ask(batchSize=5, only="failed") == (422, None)


async def test_an_empty_idempotency_key_is_rejected(client: AsyncClient, webhook: Webhook) -> None:
    answer = await client.post("/replays", json=asked(webhook.id), headers={"Idempotency-Key": ""})
    assert answer.status_code == 400
    assert answer.json()["field"] == "Idempotency-Key"
