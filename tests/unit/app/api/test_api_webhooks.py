import re

import pytest
from httpx import AsyncClient

from app.domain.deliveries import DeliveryPlace
from app.domain.live_backlog import LiveBacklog
from app.domain.model import NewReplay, Webhook, Window
from app.domain.scheduled_retries import NewScheduledRetry
from app.domain.states import ReplayState
from app.domain.windows import format_time
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

URL = "https://example.com/hooks"


async def test_a_new_webhook_has_an_id_a_location_and_a_secret(
    client: AsyncClient, receiver: ReceiverThread
) -> None:
    answer = await client.post("/webhooks", json={"url": receiver.url, "description": "billing"})

    assert answer.status_code == 201
    document = answer.json()
    assert answer.headers["location"] == f"/webhooks/{document['id']}"
    assert answer.headers["cache-control"] == "no-store"
    assert document.keys() == {
        *("id", "accountId", "url", "description", "validation", "status", "statusReason"),
        *("validatedAt", "failingSince", "previousSecretExpiresAt", "createdAt", "secret"),
        *("health", "autoRecovery", "liveRetries", "scheduledRetries", "coveredByGrant"),
        *("headerNames", "authentication"),
        *("timeoutSeconds", "maxEventsPerSecond", "maxInFlight", "retrySchedule", "ordering"),
        "eventTypes",
    }
    assert document["secret"].startswith("whsec_")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", document["createdAt"])


async def test_a_webhook_shows_the_events_that_are_retried_live(
    client: AsyncClient, store: Store, receiver: ReceiverThread
) -> None:
    path = (await client.post("/webhooks", json={"url": receiver.url})).headers["location"]
    webhook_id = path.removeprefix("/webhooks/")
    found = (await client.get(path)).json()
    assert (found["health"], found["liveRetries"]) == ("healthy", None)
    backlog = LiveBacklog(9, 4, False, 503, "HTTP 503", 1_000, 3_000)
    store.record_live_backlogs({webhook_id: backlog}, origin="here")
    found = (await client.get(path)).json()
    assert found["health"] == "failing"
    assert found["liveRetries"] == {
        "waitingEvents": 9,
        "retryingEvents": 4,
        "lastStatus": 503,
        "lastError": "HTTP 503",
        "lastFailedAt": "1970-01-01T00:00:01.000Z",
        "nextAttemptAt": "1970-01-01T00:00:03.000Z",
    }
    (listed,) = (await client.get("/webhooks")).json()["items"]
    assert listed == found
    disabled = (await client.post(f"{path}/disable")).json()
    assert (disabled["health"], disabled["liveRetries"]) == (None, found["liveRetries"])


async def test_a_webhook_shows_the_events_that_wait_for_a_scheduled_retry(
    client: AsyncClient, store: Store, receiver: ReceiverThread
) -> None:
    path = (await client.post("/webhooks", json={"url": receiver.url})).headers["location"]
    webhook_id = path.removeprefix("/webhooks/")
    assert (await client.get(path)).json()["scheduledRetries"] is None
    place = DeliveryPlace("here", 3, 7)
    store.add_scheduled_retries([NewScheduledRetry(webhook_id, place, "evt", "a.b", 0, 3_600, 4)])
    found = (await client.get(path)).json()
    due_ms = store.retry_progress(webhook_id)[place].next_ms
    assert found["scheduledRetries"] == {
        "waitingEvents": 1,
        "nextAttemptAt": format_time(due_ms or 0),
    }
    # It says nothing about the receiver, and is not counted twice.
    assert (found["health"], found["liveRetries"]) == ("healthy", None)
    (listed,) = (await client.get("/webhooks")).json()["items"]
    assert listed == found


async def test_webhooks_per_account_are_limited_for_developers(
    developers_client: AsyncClient,
    client: AsyncClient,
    developer: Issued,
    receiver: ReceiverThread,
) -> None:
    asked = {"url": receiver.url}
    answers = [await developers_client.post("/webhooks", json=asked) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [201] * 20 + [409]
    assert answers[-1].json()["type"] == "urn:rewind:problem:too-many-webhooks"
    asked["accountId"] = developer[0].account.id
    assert (await client.post("/webhooks", json=asked)).status_code == 201


async def test_the_secret_is_never_shown_again(client: AsyncClient) -> None:
    created = (await client.post("/webhooks", json={"url": URL})).json()
    once = ("secret", "coveredByGrant")
    shown = {name: value for name, value in created.items() if name not in once}

    assert (await client.get(f"/webhooks/{created['id']}")).json() == shown
    assert (await client.get("/webhooks")).json() == {"items": [shown], "nextCursor": None}
    changed = await client.patch(f"/webhooks/{created['id']}", json={"description": "new"})
    assert changed.json() == shown | {"description": "new"}


async def test_missing_members_keep_their_values(client: AsyncClient, webhook: Webhook) -> None:
    answer = await client.patch(f"/webhooks/{webhook.id}", json={"url": URL + "/v2"})
    assert answer.status_code == 200
    assert answer.json()["url"] == URL + "/v2"
    assert answer.json()["description"] == "billing"


async def test_a_merge_patch_is_accepted(client: AsyncClient, webhook: Webhook) -> None:
    answer = await client.patch(
        f"/webhooks/{webhook.id}",
        content=b'{"description": ""}',
        headers={"content-type": "application/merge-patch+json"},
    )
    assert answer.json()["description"] == ""


@pytest.mark.parametrize("field", ["url", "description"])
async def test_null_is_rejected(client: AsyncClient, webhook: Webhook, field: str) -> None:
    answer = await client.patch(f"/webhooks/{webhook.id}", json={field: None})
    assert answer.status_code == 400
    assert answer.json()["field"] == field


async def test_pages_are_linked_by_cursors(client: AsyncClient) -> None:
    created = [
        (await client.post("/webhooks", json={"url": f"{URL}/{n}"})).json()["id"] for n in range(3)
    ]
    first = (await client.get("/webhooks", params={"limit": 2})).json()
    second = (await client.get("/webhooks", params={"cursor": first["nextCursor"]})).json()

    found = [item["id"] for page in (first, second) for item in page["items"]]
    assert len(first["items"]) == 2
    assert sorted(found) == sorted(created)
    assert second["nextCursor"] is None


async def test_the_webhooks_of_one_status_are_listed(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    asked = {"status": "DISABLED"}
    assert (await client.get("/webhooks", params=asked)).json()["items"] == []
    store.disable_webhook(webhook.id, "we move")
    (found,) = (await client.get("/webhooks", params=asked)).json()["items"]
    assert (found["id"], found["status"]) == (webhook.id, "DISABLED")


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"cursor": "garbage"}, "cursor"),
        ({"limit": "0"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"status": "enabled"}, "status"),
    ],
)
async def test_an_invalid_page_is_rejected(
    client: AsyncClient, params: dict[str, str], field: str
) -> None:
    answer = await client.get("/webhooks", params=params)
    assert answer.status_code == 400
    assert answer.json()["field"] == field


async def test_a_deleted_webhook_is_gone_and_its_replay_cancelled(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    answer = await client.delete(f"/webhooks/{webhook.id}")

    assert answer.status_code == 204
    assert answer.content == b""
    assert (await client.get(f"/webhooks/{webhook.id}")).status_code == 404
    assert (await client.delete(f"/webhooks/{webhook.id}")).status_code == 404
    assert store.replay(replay.id).state is ReplayState.CANCELLED
