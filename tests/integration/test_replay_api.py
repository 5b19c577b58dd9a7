"""Replays created at a real API, with a real broker and a real receiver."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.delivery import LiveOutcome
from app.domain.model import (
    Claim,
    Counts,
    Failure,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    ReplayFilter,
    Webhook,
    Window,
)
from app.domain.moves import MoveEvent
from app.domain.options import ReplayOptions
from app.domain.windows import MINUTE_MS, format_time
from app.log.event import NewEvent
from app.log.outcomes import DeliveryOutcome, encode_outcome
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES, ensure_topics
from app.webhooks.signing import new_secret
from logbroker.client.partitioner import partition_for_key
from tests.support.http.api_clients import dry_run, missed_events
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until
from tests.support.service.api_process import ApiProcess

PARTITIONS = 4
BEGIN_MS = time.time_ns() // 1_000_000 - 60 * MINUTE_MS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        servers = broker.serve().bootstrap_servers
        ensure_topics(servers, partitions=PARTITIONS, retention_ms=6 * 86_400_000)
        yield broker


def settings(folder: Path, broker: BrokerProcess, **others: Any) -> Settings:
    return Settings(
        data_dir=folder,
        bootstrap_servers=broker.bootstrap_servers,
        partitions=PARTITIONS,
        allow_private_targets=True,
        **others,
    )


@pytest.fixture(scope="module")
def api(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("api")
    with ApiProcess(settings(folder, broker), folder) as api:
        yield api


@pytest.fixture(scope="module")
def client(api: ApiProcess) -> httpx.Client:
    return api.client()


@pytest.fixture
def pending(api: ApiProcess, receiver: ReceiverThread) -> Webhook:
    """A webhook whose receiver checks signatures, and has not been asked yet."""
    webhook = api.store.create_webhook(NewWebhook(receiver.url, "", new_secret(), DEFAULT_ACCOUNT))
    receiver.expect(webhook.secret)
    return webhook


@pytest.fixture
def webhook(api: ApiProcess, pending: Webhook) -> Webhook:
    return api.store.enable_webhook(pending.id, pending.url)


def asked(webhook: Webhook, minutes: int = 30, **options: object) -> dict[str, object]:
    """The first `minutes` from `BEGIN_MS` on."""
    window = {
        "from": format_time(BEGIN_MS),
        "to": format_time(BEGIN_MS + minutes * MINUTE_MS),
    }
    return {"webhookId": webhook.id, **window, **options}


def publish(client: httpx.Client, webhook: Webhook, count: int) -> None:
    """Events at intervals of a second from `BEGIN_MS` on, every third of them a message."""
    events = [
        {
            "id": f"evt_{n}",
            "type": "dm.sent" if n % 3 == 0 else "follow.created",
            "time": format_time(BEGIN_MS + n * 1_000),
            "webhookId": webhook.id,
            "data": {"n": n},
        }
        for n in range(count)
    ]
    assert client.post("/events", json=events).status_code == 202


def assert_created_by_a_key(api: ApiProcess, replay: Replay) -> None:
    created, *_ = api.store.moves(replay.id)
    assert created.event is MoveEvent.CREATE
    keys = api.store.keys()
    assert created.actor in {key.actor for key in keys}


def test_a_dry_run_estimates_and_creates_nothing(
    api: ApiProcess, client: httpx.Client, receiver: ReceiverThread, pending: Webhook
) -> None:
    publish(client, pending, 120)

    found = dry_run(client, asked(pending, minutes=1))
    assert found["partition"] == partition_for_key(pending.id.encode(), PARTITIONS)
    assert found["endOffset"] - found["startOffset"] >= 60
    assert (found["events"], found["isExact"], found["isUpperBound"]) == (60, True, False)
    assert found["bytes"] > 60 * len('{"id":"evt_1","type":"dm.sent","data":{"n":1}}')
    assert found["estimatedSeconds"] > 0
    assert client.get("/replays", params={"webhookId": pending.id}).json()["items"] == []
    assert receiver.webhooks == []
    assert api.store.webhook(pending.id).status == "PENDING"


@pytest.mark.parametrize(
    ("options", "events"),
    [
        ({"eventTypes": ["dm.*"]}, 20),
        ({"eventTypes": ["dm.sent", "follow.create?"]}, 60),
        ({"eventTypes": ["nothing.*"]}, 0),
    ],
)
def test_a_dry_run_applies_the_options(
    client: httpx.Client, webhook: Webhook, options: dict[str, object], events: int
) -> None:
    publish(client, webhook, 90)
    found = dry_run(client, asked(webhook, minutes=1, **options))
    assert (found["events"], found["isExact"], found["isUpperBound"]) == (events, True, False)


def test_a_dry_run_counts_missed_events(
    broker: BrokerProcess, client: httpx.Client, webhook: Webhook
) -> None:
    publish(client, webhook, 2)
    # There is no other publisher: these are the last two of their partition.
    place = dry_run(client, asked(webhook))
    offset = place["endOffset"] - 2
    delivered = DeliveryOutcome(
        place["partition"], offset, "evt_0", LiveOutcome.DELIVERED, 1, 204, None, BEGIN_MS, None
    )
    note_outcome(broker, webhook, delivered)
    assert missed_events(client, asked(webhook)) == 1


def note_outcome(broker: BrokerProcess, webhook: Webhook, outcome: DeliveryOutcome) -> None:
    """Write the outcome of a live delivery, as the live path does."""
    record = NewEvent(webhook.id, outcome.event_id, "", BEGIN_MS, encode_outcome(outcome))

    async def scenario() -> None:
        servers = broker.bootstrap_servers
        async with EventPublisher(servers, origin="local", server="test") as publisher:
            await publisher.publish(DELIVERY_OUTCOMES, [record])

    asyncio.run(scenario())


def test_a_dry_run_with_a_lower_rate_takes_longer(client: httpx.Client, webhook: Webhook) -> None:
    publish(client, webhook, 90)
    found = dry_run(client, asked(webhook, maxEventsPerSecond=1))
    assert (found["events"], found["estimatedSeconds"] >= 90) == (90, True)


def test_a_replay_is_queued_with_all_its_options(
    api: ApiProcess, client: httpx.Client, webhook: Webhook
) -> None:
    options: dict[str, Any] = {
        "eventTypes": ["follow.*"],
        "only": "failed",
        "maxEventsPerSecond": 100,
        "maxInFlight": 1,
        "batchSize": 20,
        "targetUrl": None,
    }
    answer = client.post("/replays", json=asked(webhook, **options))
    document = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/replays/{document['id']}")
    assert document["options"] == options
    stored = api.store.replay(document["id"])
    assert stored.options == ReplayOptions(("follow.*",), stored.options.only, 100, 1, 20)
    assert_created_by_a_key(api, stored)

    second = client.post("/replays", json=asked(webhook))
    assert (second.status_code, second.json()["replayId"]) == (409, document["id"])


def test_a_pending_webhook_is_verified_when_its_replay_is_created(
    api: ApiProcess, client: httpx.Client, receiver: ReceiverThread, pending: Webhook
) -> None:
    receiver.answer(503)
    refused = client.post("/replays", json=asked(pending))
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:rewind:problem:webhook-not-enabled"
    assert "503" in refused.json()["detail"]
    assert api.store.replays(ReplayFilter(webhook_id=pending.id)).items == ()

    receiver.answer(204)
    assert client.post("/replays", json=asked(pending)).status_code == 202
    assert api.store.webhook(pending.id).status == "ENABLED"
    assert [webhook.is_ping for webhook in receiver.webhooks] == [True, True]
    assert receiver.problems == []


def test_another_target_url_is_verified(
    api: ApiProcess, client: httpx.Client, receiver: ReceiverThread, webhook: Webhook
) -> None:
    with ReceiverThread() as elsewhere:
        # It knows another secret than the webhook's, so it refuses what is signed under that.
        elsewhere.expect(new_secret())
        refused = client.post("/replays", json=asked(webhook, targetUrl=elsewhere.url))
        assert refused.status_code == 422
        problem = refused.json()
        assert problem["type"] == "urn:rewind:problem:not-validated"
        assert (problem["field"], problem["value"]) == ("targetUrl", elsewhere.url)
        assert "401" in problem["detail"]
        assert api.store.replays(ReplayFilter(webhook_id=webhook.id)).items == ()

        elsewhere.expect(webhook.secret)
        answer = client.post("/replays", json=asked(webhook, targetUrl=elsewhere.url))
        assert answer.status_code == 202
        assert answer.json()["options"]["targetUrl"] == elsewhere.url
        assert [ping.is_ping for ping in elsewhere.webhooks] == [True, True]
    assert receiver.webhooks == []


def test_the_webhooks_own_url_is_not_verified_again(
    client: httpx.Client, receiver: ReceiverThread, webhook: Webhook
) -> None:
    assert client.post("/replays", json=asked(webhook, targetUrl=webhook.url)).status_code == 202
    assert receiver.webhooks == []


def ended(api: ApiProcess, webhook: Webhook, failures: int) -> str:
    """A replay that is over and has so many failures."""
    window = Window(BEGIN_MS, BEGIN_MS + MINUTE_MS)
    replay, _ = api.store.create_replay(NewReplay(webhook.id, window, ReplayOptions(batch_size=7)))
    claim = claim_of(api, replay.id)
    api.store.begin_delivery(claim.lease, OffsetRange(0, 0, 10))
    given_up = [Failure(n, f"evt_{n}", 6, 503, "HTTP 503") for n in range(failures)]
    api.store.checkpoint(claim.lease, 10, Counts(10 - failures, 0, failures), given_up)
    assert api.store.complete(claim.lease)
    return replay.id


def claim_of(api: ApiProcess, replay_id: str) -> Claim:
    while claim := api.store.claim("test", 60.0):
        if claim.replay.id == replay_id:
            return claim
    raise AssertionError(f"{replay_id} cannot be claimed")


def test_failures_of_a_replay_are_retried_by_a_new_one(
    database_url: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    with ApiProcess(settings(tmp_path, broker, database=database_url), tmp_path) as api:
        try_again(api)


def try_again(api: ApiProcess) -> None:
    client = api.client()
    webhook = api.store.create_webhook(NewWebhook("http://127.0.0.1:9/", "", new_secret()))
    api.store.enable_webhook(webhook.id, webhook.url)
    parent_id = ended(api, webhook, failures=3)

    names = {"Idempotency-Key": "again"}
    answer = client.post(f"/replays/{parent_id}/retry", headers=names)
    child = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/replays/{child['id']}")
    assert (child["retryOf"], child["state"], child["webhookId"]) == (
        parent_id,
        "OPEN",
        webhook.id,
    )
    assert child["options"]["batchSize"] == 7
    assert child["from"] == client.get(f"/replays/{parent_id}").json()["from"]
    repeated = client.post(f"/replays/{parent_id}/retry", headers=names)
    assert (repeated.status_code, repeated.json()["id"]) == (202, child["id"])

    third = client.post(f"/replays/{parent_id}/retry")
    assert (third.status_code, third.json()["replayId"]) == (409, child["id"])
    early = client.post(f"/replays/{child['id']}/retry")
    assert (early.status_code, early.json()["type"]) == (409, "urn:rewind:problem:illegal-move")
    assert early.json()["value"] == "OPEN"
    assert early.json()["allowed"] == "COMPLETED, FAILED, CANCELLED"


def test_a_replay_without_failures_cannot_be_retried(
    api: ApiProcess, client: httpx.Client, webhook: Webhook
) -> None:
    answer = client.post(f"/replays/{ended(api, webhook, failures=0)}/retry")
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:rewind:problem:nothing-to-retry"


def as_on_twitter(client: httpx.Client, webhook: Webhook) -> httpx.Response:
    """Ask for the minute that `BEGIN_MS` lies in."""
    dates = {"from_date": minute(BEGIN_MS), "to_date": minute(BEGIN_MS + MINUTE_MS)}
    where = f"/1.1/account_activity/replay/webhooks/{webhook.id}/subscriptions/all.json"
    return client.post(where, params=dates)


def minute(time_ms: int) -> str:
    return time.strftime("%Y%m%d%H%M", time.gmtime(time_ms / 1_000))


def test_a_replay_is_created_through_the_twitter_compatible_route(
    api: ApiProcess, client: httpx.Client, webhook: Webhook
) -> None:
    answer = as_on_twitter(client, webhook)
    job = answer.json()
    assert (answer.status_code, sorted(job)) == (202, ["created_at", "job_id"])
    replay = api.store.replay(job["job_id"])
    assert job["created_at"] == format_time(replay.created_ms)[:19] + "Z"
    begin_ms = BEGIN_MS // MINUTE_MS * MINUTE_MS
    assert replay.window == Window(begin_ms, begin_ms + MINUTE_MS)
    assert (replay.notice, replay.options) == ("twitter", ReplayOptions())
    assert_created_by_a_key(api, replay)

    again = as_on_twitter(client, webhook)
    assert again.status_code == 409
    assert again.json() == {
        "errors": [
            {
                "code": 355,
                "message": "A replay job is already in progress for this webhook.",
            }
        ]
    }


def test_a_replay_of_the_twitter_compatible_route_streams_and_sends_its_notice(
    api: ApiProcess,
    client: httpx.Client,
    receiver: ReceiverThread,
    webhook: Webhook,
    tmp_path: Path,
) -> None:
    publish(client, webhook, 90)
    begin_ms = BEGIN_MS // MINUTE_MS * MINUTE_MS
    wanted = [f"evt_{n}" for n in range(90) if BEGIN_MS + n * 1_000 < begin_ms + MINUTE_MS]
    job_id = as_on_twitter(client, webhook).json()["job_id"]
    with working(api, tmp_path):
        with client.stream("GET", f"/replays/{job_id}/progress") as answer:
            *_, last = (line for line in answer.iter_lines() if line.startswith("data: "))
        until(lambda: len(receiver.webhooks) > len(wanted), "the notice came")
    ended = json.loads(last.removeprefix("data: "))
    assert (ended["state"], ended["progress"]) == ("COMPLETED", 1.0)
    assert ended["counts"] == {"delivered": len(wanted), "duplicates": 0, "failed": 0}

    *events, notice = receiver.webhooks
    assert sorted(event.event_id for event in events) == sorted(wanted)
    assert json.loads(notice.body)["replay_job_status"] == {
        "webhook_id": webhook.id,
        "job_state": "Complete",
        "job_state_description": "Job completed successfully",
        "job_id": job_id,
    }
    assert receiver.problems == []


@contextmanager
def working(api: ApiProcess, folder: Path) -> Iterator[None]:
    """With a worker on the same database and log."""
    environment = {
        "REWIND_DATABASE": api.settings.database,
        "REWIND_SECRET_KEY": api.settings.secret_key,
        "REWIND_BOOTSTRAP_SERVERS": api.settings.bootstrap_servers,
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
    }
    output = folder / "worker.stderr"
    with ServerProcess(["-m", "app", "worker"], output, environment) as worker:
        worker.start("rewind worker ready")
        yield
        assert worker.stop() == 0


def test_a_failed_verification_has_twitters_form(
    client: httpx.Client, receiver: ReceiverThread, pending: Webhook
) -> None:
    receiver.answer(503)
    answer = as_on_twitter(client, pending)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, 214)
