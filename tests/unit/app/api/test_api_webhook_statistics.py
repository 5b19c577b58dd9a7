"""Test events, statistics of the last hour, and missed hours."""

import asyncio
import time

import pytest
from httpx import AsyncClient

from app.config import Settings
from app.domain.model import NewWebhook, Webhook
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.domain.windows import format_time, parse_time
from app.services import verification
from app.services.verification import VERIFICATIONS_PER_ACCOUNT_MAX
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
FIVE_MS = 300_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def at_receiver(store: Store, developer: Issued, receiver: ReceiverThread) -> Webhook:
    """A webhook of the developer, PENDING."""
    key, _ = developer
    webhook = store.create_webhook(NewWebhook(receiver.url, "", new_secret(), key.account.id))
    receiver.expect(webhook.secret)
    return webhook


async def test_a_test_event_is_sent_and_the_response_shown(
    developers_client: AsyncClient, store: Store, at_receiver: Webhook, receiver: ReceiverThread
) -> None:
    store.enable_webhook(at_receiver.id, at_receiver.url)
    receiver.answer(503)
    answer = await developers_client.post(f"/webhooks/{at_receiver.id}/test")
    assert answer.status_code == 200
    found = answer.json()
    assert found.pop("durationMs") >= 0
    response = found.pop("response")
    assert isinstance(response, str)
    assert found == {
        "delivered": False,
        "status": 503,
        "reason": "HTTP 503 Service Unavailable",
    }
    (got,) = receiver.webhooks
    assert got.event_id.startswith("test_")
    assert receiver.problems == []
    assert store.webhook(at_receiver.id).status == "ENABLED"


async def test_responses_of_unverified_receivers_are_shown_to_operators_only(
    developers_client: AsyncClient, client: AsyncClient, at_receiver: Webhook, store: Store
) -> None:
    path = f"/webhooks/{at_receiver.id}/test"
    found = (await developers_client.post(path)).json()
    assert (found["delivered"], found["response"]) == (True, None)
    assert (await client.post(path)).json()["response"] is not None
    store.disable_webhook(at_receiver.id, "not yet")
    assert (await developers_client.post(path)).json()["response"] is None
    store.enable_webhook(at_receiver.id, at_receiver.url)
    store.disable_webhook(at_receiver.id, "not any more")
    assert (await developers_client.post(path)).json()["response"] is not None
    store.update_webhook(at_receiver.id, url=at_receiver.url + "/elsewhere")
    assert (await developers_client.post(path)).json()["response"] is None


async def test_a_receiver_of_another_account_cannot_be_tested(
    others_client: AsyncClient, at_receiver: Webhook, receiver: ReceiverThread
) -> None:
    assert (await others_client.post(f"/webhooks/{at_receiver.id}/test")).status_code == 404
    assert receiver.webhooks == []


async def test_tests_and_verifications_share_their_concurrency_limit(
    developers_client: AsyncClient, at_receiver: Webhook, receiver: ReceiverThread
) -> None:
    # Long enough for all to be asked for meanwhile.
    receiver.answer(204, delay_s=1)
    path = f"/webhooks/{at_receiver.id}/test"
    answers = await asyncio.gather(
        *(developers_client.post(path) for _ in range(VERIFICATIONS_PER_ACCOUNT_MAX + 2))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * VERIFICATIONS_PER_ACCOUNT_MAX + [429] * 2
    assert len(receiver.webhooks) == VERIFICATIONS_PER_ACCOUNT_MAX


async def test_tests_per_minute_are_limited(
    developers_client: AsyncClient, at_receiver: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "VERIFICATIONS_PER_MINUTE_MAX", 2)
    path = f"/webhooks/{at_receiver.id}"
    answers = [
        await developers_client.post(f"{path}/test"),
        await developers_client.post(f"{path}/enable"),
        await developers_client.post(f"{path}/test"),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]


async def test_statistics_cover_the_last_hour(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    before_ms = now_ms()
    this_ms = before_ms // FIVE_MS * FIVE_MS
    took = (5, 4, 0, 0, 1, 0, 0, 0)
    tallies = [
        DeliveryTally(this_ms, 6, 1, 1, 2, took),
        DeliveryTally(this_ms - HOUR_MS + FIVE_MS, 2, 0, 0, 0, took),
        DeliveryTally(this_ms - HOUR_MS - FIVE_MS, 1_000, 1_000),
    ]
    store.add_tallies([CountedTally(webhook.id, Span.SETTLED, each) for each in tallies], origin="")
    answer = await developers_client.get(f"/webhooks/{webhook.id}/statistics")
    assert answer.status_code == 200
    found = answer.json()
    assert before_ms <= parse_time(found["to"]) <= now_ms()
    lasts_ms = parse_time(found.pop("to")) - parse_time(found["from"])
    assert HOUR_MS <= lasts_ms < HOUR_MS + FIVE_MS
    assert parse_time(found.pop("from")) % FIVE_MS == 0
    answers = {each["withinMs"]: each["count"] for each in found.pop("answers")}
    assert answers == {50: 10, 100: 8, 250: 0, 500: 0, 1000: 2, 2500: 0, 5000: 0, None: 0}
    assert found == {
        "delivered": 8,
        "failed": 1,
        "skipped": 1,
        "leftOver": 1,
        "disabled": 2,
        "successRate": 0.8,
        "p50Ms": 50,
        "p95Ms": 1000,
    }


async def test_statistics_of_a_webhook_without_events_are_empty(
    developers_client: AsyncClient, webhook: Webhook
) -> None:
    found = (await developers_client.get(f"/webhooks/{webhook.id}/statistics")).json()
    assert (found["delivered"], found["successRate"], found["p50Ms"], found["p95Ms"]) == (
        *(0, None, None, None),
    )
    missed = (await developers_client.get(f"/webhooks/{webhook.id}/missed")).json()
    assert missed == {"missed": 0, "unreplayed": 0, "hours": []}


async def test_missed_hours_are_listed_as_windows(
    developers_client: AsyncClient, store: Store, webhook: Webhook, settings: Settings
) -> None:
    before_ms = now_ms()
    this_ms = before_ms // HOUR_MS * HOUR_MS
    hours = [
        DeliveryTally(this_ms, 9, 1, missed_until_ms=this_ms + 1, missed_at_ms=before_ms),
        DeliveryTally(this_ms - HOUR_MS, 9, 1, 2, 3, missed_until_ms=this_ms, missed_at_ms=1),
        DeliveryTally(this_ms - 2 * HOUR_MS, 9),
        DeliveryTally(this_ms - settings.history_ms - HOUR_MS, failed=1),
    ]
    store.add_tallies([CountedTally(webhook.id, Span.EVENT, each) for each in hours], origin="")
    found = (await developers_client.get(f"/webhooks/{webhook.id}/missed")).json()
    assert (found["missed"], found["unreplayed"]) == (7, 7)
    running, ended = found["hours"]
    assert running["from"] == format_time(this_ms)
    assert before_ms <= parse_time(running["to"]) <= max(now_ms(), this_ms + HOUR_MS)
    assert ended == {
        "from": format_time(this_ms - HOUR_MS),
        "to": format_time(this_ms),
        "missed": 6,
        "failed": 1,
        "skipped": 2,
        "leftOver": 2,
        "disabled": 3,
        "isReplayed": False,
    }


@pytest.mark.parametrize("what", ["statistics", "missed"])
async def test_statistics_of_another_account_are_not_found(
    others_client: AsyncClient, webhook: Webhook, what: str
) -> None:
    assert (await others_client.get(f"/webhooks/{webhook.id}/{what}")).status_code == 404
