"""Deliveries in the API, on a real log, a real live path and a real receiver."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from app.cli import main
from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryPlace, format_delivery_id
from app.domain.model import Webhook, Window
from app.domain.options import Only
from app.domain.states import TERMINAL
from app.domain.windows import format_time
from app.log.topics import DELIVERY_LOG
from tests.support.http.api_clients import client_at, missed_events
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene
from tests.support.service.live_service import event, now_ms


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleScene]:
    """Log, database, API and live path of all tests; each has webhooks of its own."""
    folder: Path = tmp_path_factory.mktemp("deliveries")
    options = ("--stop-on-stdin-close", "--group-initial-rebalance-delay-ms", "0")
    with (
        BrokerProcess(folder / "log", *options) as broker,
        ConsoleScene(folder, broker.serve(), f"sqlite:///{folder}/rewind.db") as scene,
    ):
        scene.make()
        scene.worker.launch()
        scene.start_api()
        scene.live(live_delays_s="0,0.05,0.05")
        scene.key("alice", Scope.DEVELOPER)
        scene.key("mallory", Scope.DEVELOPER)
        yield scene


@pytest.fixture(scope="module")
def operator(scene: ConsoleScene) -> Iterator[httpx.Client]:
    with client_at(scene.origin, scene.key()) as client:
        yield client


@pytest.fixture
def webhook(scene: ConsoleScene, receiver: ReceiverThread) -> Webhook:
    return scene.webhook_of("alice", receiver)


def listed(api: httpx.Client, webhook: Webhook, **query: Any) -> list[dict[str, Any]]:
    """All pages of a list."""
    found: list[dict[str, Any]] = []
    while True:
        answer = api.get(f"/webhooks/{webhook.id}/deliveries", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert page["skipped"] == []
        found += page["items"]
        if page["nextCursor"] is None:
            return found
        query["cursor"] = page["nextCursor"]


def until_settled(api: httpx.Client, webhook: Webhook, count: int) -> list[dict[str, Any]]:
    def are_settled() -> bool:
        found = listed(api, webhook)
        return len(found) == count and all(each["settledTime"] for each in found)

    until(are_settled, f"{count} settled deliveries")
    return listed(api, webhook)


def test_a_delivery_shows_the_event_and_its_attempt(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook
) -> None:
    odd = event(1, text="\u2028 ü 🎉 \\u0000", size="x" * 100_000)
    scene.owe(webhook, odd)
    (found,) = until_settled(operator, webhook, 1)
    expected = {
        "eventId": "evt_1",
        "webhookId": webhook.id,
        "eventType": "follow.created",
        "status": "succeeded",
        "reason": None,
        "attemptCount": 1,
        "responseStatus": 204,
    }
    assert found | expected == found
    detail = operator.get(f"/deliveries/{found['id']}").json()
    assert detail | found == detail
    assert detail["payload"].encode() == json.dumps(odd).encode()
    assert detail["payloadBytes"] == len(json.dumps(odd))
    assert {"name": "event-id", "value": "evt_1"} in detail["headers"]
    (attempt,) = detail["attempts"]
    assert attempt["status"] == "succeeded"
    assert attempt["server"] == "test"
    assert attempt["durationMs"] > 0


def test_failed_attempts_show_what_the_receiver_answered(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    receiver.answer(503, body=b"overloaded " + 2_000 * b"x" + "ü".encode())
    scene.owe(webhook, event(2))
    (found,) = until_settled(operator, webhook, 1)
    assert (found["status"], found["attemptCount"]) == ("failed", 3)
    assert found["reason"] == "HTTP 503 Service Unavailable"
    detail = operator.get(f"/deliveries/{found['id']}").json()
    assert [each["number"] for each in detail["attempts"]] == [1, 2, 3]
    for attempt in detail["attempts"]:
        assert attempt["responseStatus"] == 503
        assert attempt["error"] == "HTTP 503 Service Unavailable"
        assert attempt["response"].startswith("overloaded x")
        assert len(attempt["response"]) == 1_024
    assert listed(operator, webhook, status="failed") == [found]
    assert listed(operator, webhook, status="succeeded") == []


def test_pages_follow_each_other_without_gap_or_repetition(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    other = scene.webhook_of("mallory", receiver)
    events = [event(n, "follow.created" if n % 3 else "block.created") for n in range(40)]
    for each in events:
        scene.owe(webhook, each)
        scene.owe(other, each)
    settled = until_settled(operator, webhook, 40)
    assert {each["eventId"] for each in settled} == {each["id"] for each in events}
    assert {each["webhookId"] for each in settled} == {webhook.id}
    times = [each["settledTime"] for each in settled]
    assert times == sorted(times, reverse=True)
    assert listed(operator, webhook, limit=7) == settled
    blocks = listed(operator, webhook, eventType="block.*", limit=5)
    assert len(blocks) == 14
    (one,) = listed(operator, webhook, eventId="evt_17")
    assert one["eventId"] == "evt_17"
    assert {each["eventType"] for each in blocks} == {"block.created"}
    until(lambda: len(listed(operator, other)) == 40, "the deliveries of the other webhook")


def test_pending_deliveries_come_first_and_wait_for_their_retry(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    receiver.answer(503, retry_after="600")
    scene.owe(webhook, event(3))

    def pending() -> list[dict[str, Any]]:
        return listed(operator, webhook, status="pending")

    until(lambda: receiver.webhooks and pending(), "a pending delivery")
    (found,) = pending()
    assert (found["eventId"], found["status"], found["settledTime"]) == ("evt_3", "pending", None)
    assert listed(operator, webhook) == [found]

    def attempts() -> list[dict[str, Any]]:
        detail: dict[str, Any] = operator.get(f"/deliveries/{found['id']}").json()
        assert detail["status"] == "pending"
        return list(detail["attempts"]) if detail["nextAttemptTime"] else []

    until(attempts, "the failed attempt is shown with the time of the retry")
    assert attempts()[0]["responseStatus"] == 503


def test_a_window_limits_deliveries_by_event_time(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook
) -> None:
    now = now_ms()
    for number, age_s in ((4, 7_200), (5, 3_600), (6, 0)):
        published = event(number) | {
            "time": format_time(now - 1_000 * age_s),
            "webhookId": webhook.id,
        }
        assert operator.post("/events", json=published).status_code == 202
    until_settled(operator, webhook, 3)
    window = {"from": format_time(now - 7_200_000), "to": format_time(now - 3_600_000)}
    assert [each["eventId"] for each in listed(operator, webhook, **window)] == ["evt_4"]
    answer = operator.get(
        f"/webhooks/{webhook.id}/deliveries", params={"from": window["to"], "to": window["from"]}
    )
    assert (answer.status_code, answer.json()["field"]) == (400, "from")


def test_a_failed_delivery_is_resent_with_its_event_id(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    receiver.answer(503, body=b"overloaded")
    scene.owe(webhook, event(8))
    (failed,) = until_settled(operator, webhook, 1)
    path = f"/deliveries/{failed['id']}"

    def resent() -> list[dict[str, Any]]:
        attempts = operator.get(path).json()["attempts"]
        return [each for each in attempts if each["trigger"] == "resend"]

    answer = operator.post(f"{path}/resend")
    assert (answer.status_code, answer.headers["location"]) == (202, path)
    assert answer.json()["deliveryId"] == failed["id"]
    until(resent, "a worker made the first resend")
    assert operator.get(path).json() | failed == operator.get(path).json()
    (first,) = resent()
    assert (first["number"], first["status"], first["responseStatus"]) == (4, "failed", 503)
    assert first["response"] == "overloaded"
    receiver.answer(204)
    # A replay that is active does not hold up a resend.
    scene.replay(webhook, Window(0, now_ms()), origin="elsewhere")
    body = {"deliveryIds": [failed["id"]]}
    assert operator.post(f"/webhooks/{webhook.id}/resend", json=body).status_code == 202
    until(lambda: len(resent()) == 2, "a worker made the second resend")
    succeeded = failed | {"status": "succeeded", "reason": None}
    assert listed(operator, webhook) == listed(operator, webhook, status="succeeded") == [succeeded]
    assert listed(operator, webhook, status="failed") == []
    detail = operator.get(path).json()
    assert (detail | succeeded, detail["pendingResends"]) == (detail, 0)
    assert (detail["attempts"][-1]["status"], detail["attempts"][-1]["number"]) == ("succeeded", 5)
    assert {each.event_id for each in receiver.webhooks} == {"evt_8"}


def test_replays_of_missed_events_leave_out_what_was_resent(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    receiver.answer(503)
    scene.owe(webhook, event(20), event(21))
    until_settled(operator, webhook, 2)
    window = {"from": format_time(now_ms() - 3_600_000), "to": format_time(now_ms())}
    replay = {"webhookId": webhook.id, **window}
    assert missed_events(operator, replay) == 2
    receiver.answer(204)
    body = {"eventIds": ["evt_21"], "from": window["from"]}
    answer = operator.post(f"/webhooks/{webhook.id}/resend", json=body)
    assert answer.status_code == 202, answer.text
    (resend,) = answer.json()["items"]
    assert (resend["eventId"], resend["status"]) == ("evt_21", "pending")
    until(lambda: listed(operator, webhook, status="succeeded"), "the event was resent")
    assert missed_events(operator, replay) == 1


def test_a_delivery_names_the_replays_that_sent_its_event(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    receiver.answer(503, body=b"overloaded")
    scene.owe(webhook, event(30), event(31, "block.created"))
    settled = until_settled(operator, webhook, 2)
    paths = {each["eventId"]: f"/deliveries/{each['id']}" for each in settled}

    def replays(event_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = operator.get(paths[event_id]).json()["replays"]
        return found

    def finish(**options: Any) -> str:
        replay = scene.replay(webhook, Window(now_ms() - 3_600_000, now_ms()), **options)
        until(lambda: scene.store.replay(replay.id).state in TERMINAL, "the replay ended")
        return replay.id

    first = finish(event_types=("follow.*",))
    (failed,) = replays("evt_30")
    assert (failed["replayId"], failed["status"], failed["attempts"]) == (first, "failed", 2)
    assert (failed["responseStatus"], failed["response"]) == (503, "overloaded")
    assert replays("evt_31") == []
    receiver.answer(204)
    second = finish(only=Only.FAILED)
    assert [each["replayId"] for each in replays("evt_30")] == [first, second]
    succeeded = replays("evt_30")[1]
    assert (failed["deliveredBy"], succeeded["status"]) == (None, "succeeded")
    replay = scene.store.replay(second)
    assert replay.started_ms is not None
    assert replay.finished_ms is not None
    assert (
        format_time(replay.started_ms)
        <= succeeded["deliveredBy"]
        <= format_time(replay.finished_ms)
    )
    # It has nothing left to send.
    finish(only=Only.FAILED)
    assert [each["replayId"] for each in replays("evt_31")] == [second]
    assert operator.get(paths["evt_31"]).json()["status"] == "failed"


def test_a_resend_survives_the_death_of_api_and_workers(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    scene.owe(webhook, event(22))
    (found,) = until_settled(operator, webhook, 1)
    path = f"/deliveries/{found['id']}"
    scene.worker.kill()
    first = operator.post(f"{path}/resend").json()
    assert operator.post(f"{path}/resend").json() == first
    scene.api.kill()
    scene.start_api()
    assert operator.get(path).json()["pendingResends"] == 1
    scene.worker.launch()
    until(lambda: len(operator.get(path).json()["attempts"]) == 2, "a worker made the resend")
    assert receiver.taken == ["evt_22", "evt_22"]


def test_only_own_deliveries_of_an_enabled_webhook_are_resent(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    other = scene.webhook_of("mallory", receiver)
    scene.owe(webhook, event(9))
    scene.owe(other, event(9))
    (found,) = until_settled(operator, webhook, 1)
    (foreign,) = until_settled(operator, other, 1)
    body = {"deliveryIds": [found["id"]]}
    with client_at(scene.origin, scene.key("mallory", Scope.DEVELOPER)) as mallory:
        for path in (
            f"/deliveries/{found['id']}/resend",
            f"/webhooks/{webhook.id}/resend",
            f"/webhooks/{other.id}/resend",
        ):
            assert mallory.post(path, json=body).status_code == 404, path
    resend = f"/webhooks/{webhook.id}/resend"
    for ids in ([foreign["id"]], [found["id"], foreign["id"]], ["dlv_x"]):
        assert operator.post(resend, json={"deliveryIds": ids}).status_code == 404
    unknown = operator.post(resend, json={"eventIds": ["evt_9", "evt_404"]})
    assert (unknown.status_code, unknown.json()["value"]) == (404, "evt_404")
    long_ago = {"eventIds": ["evt_9"], "to": format_time(now_ms() - 3_600_000)}
    assert operator.post(resend, json=long_ago).status_code == 404
    scene.store.disable_webhook(webhook.id, "its owner is on holiday")
    refused = operator.post(f"/deliveries/{found['id']}/resend")
    assert (refused.status_code, refused.json()["title"]) == (409, "Webhook not enabled")
    assert operator.get(f"/deliveries/{found['id']}").json()["pendingResends"] == 0


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("deliveryIds", {"deliveryIds": []}),
        ("deliveryIds", {"deliveryIds": ["x"] * 101}),
        ("deliveryIds[0]", {"deliveryIds": ["x" * 201]}),
        ("deliveryIds[0]", {"deliveryIds": [1]}),
        ("eventIds", {"eventIds": ["evt_1"] * 101}),
        ("eventIds[0]", {"eventIds": ["a b"]}),
        ("eventIds", {}),
        ("eventIds", {"eventIds": ["evt_1"], "deliveryIds": ["dlv_1"]}),
        ("from", {"eventIds": ["evt_1"], "from": "yesterday"}),
    ],
)
def test_invalid_resends_are_refused(
    operator: httpx.Client, webhook: Webhook, field: str, body: dict[str, Any]
) -> None:
    answer = operator.post(f"/webhooks/{webhook.id}/resend", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_commands_list_show_and_resend_deliveries(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook
) -> None:
    scene.owe(webhook, event(10), event(11))
    until_settled(operator, webhook, 2)
    options = ["--api-url", scene.origin, "--api-key", scene.key()]

    def lines(*arguments: str) -> list[dict[str, Any]]:
        result = CliRunner().invoke(main, [*arguments, *options])
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    assert lines("deliveries", "list", webhook.id, "--status", "succeeded") == listed(
        operator, webhook
    )
    (one,) = lines("deliveries", "list", webhook.id, "--event-id", "evt_11", "--limit", "1")
    (shown,) = lines("deliveries", "show", one["id"])
    assert (shown["eventId"], len(shown["attempts"])) == ("evt_11", 1)
    (by_delivery,) = lines("resend", one["id"])
    (by_event,) = lines("resend", "--webhook", webhook.id, "evt_11", "--from", one["time"])
    assert by_delivery["deliveryId"] == by_event["deliveryId"] == one["id"]
    for unknown in (["deliveries", "show", "dlv_x"], ["resend", "dlv_x"]):
        result = CliRunner().invoke(main, [*unknown, *options])
        assert (result.exit_code, result.stdout) == (1, "")


def test_an_account_reads_only_its_own_deliveries(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook
) -> None:
    scene.owe(webhook, event(7))
    (found,) = until_settled(operator, webhook, 1)
    with client_at(scene.origin, scene.key("mallory", Scope.DEVELOPER)) as mallory:
        foreign = mallory.get(f"/deliveries/{found['id']}")
        assert foreign.status_code == 404
        assert mallory.get(f"/webhooks/{webhook.id}/deliveries").status_code == 404
    with client_at(scene.origin, scene.key("alice", Scope.DEVELOPER)) as alice:
        own = alice.get(f"/deliveries/{found['id']}").json()
        assert own["eventId"] == "evt_7"
        assert own["attempts"][0]["server"] is None
        assert {each["name"] for each in own["headers"]}.isdisjoint({"server", "audit"})


@pytest.mark.parametrize(
    "unknown",
    [
        "dlv_x",
        "evt_1",
        "%00",
        "d" * 2_000,
        format_delivery_id(DeliveryPlace("here", 0, 10**9)),
        format_delivery_id(DeliveryPlace("here", 99, 0)),
        format_delivery_id(DeliveryPlace("elsewhere", 0, 0)),
    ],
)
def test_an_unknown_delivery_is_not_found(operator: httpx.Client, unknown: str) -> None:
    answer = operator.get(f"/deliveries/{unknown}")
    assert (answer.status_code, answer.json()["title"]) == (404, "Not found")


def test_events_without_headers_and_text_have_deliveries(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook
) -> None:
    scene.produce(DELIVERY_LOG, [(webhook.id, {}, b"\xff\x00")])
    (found,) = until_settled(operator, webhook, 1)
    assert found["eventId"].startswith("delivery_log-")
    detail = operator.get(f"/deliveries/{found['id']}").json()
    assert (detail["payload"], detail["payloadBase64"]) == (None, "/wA=")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "done"),
        ("limit", "101"),
        ("limit", "0"),
        ("cursor", "x"),
        ("cursor", "s" + "9" * 30),
        ("eventType", "a b"),
        ("eventId", "a b"),
        ("from", "yesterday"),
    ],
)
def test_invalid_queries_are_refused(
    operator: httpx.Client, webhook: Webhook, name: str, value: str
) -> None:
    answer = operator.get(f"/webhooks/{webhook.id}/deliveries", params={name: value})
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == name


def test_a_delivery_is_pending_until_its_last_scheduled_retry(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    path = f"/webhooks/{webhook.id}"
    assert operator.patch(path, json={"retrySchedule": [1, 3_600]}).status_code == 200
    receiver.answer(503)
    scene.owe(webhook, event(51))
    until(lambda: scene.store.retry_progress(webhook.id), "it waits for a scheduled retry")
    until(lambda: listed(operator, webhook, status="pending"), "it is listed")
    (progress,) = scene.store.retry_progress(webhook.id).values()
    due = format_time(progress.next_ms or 0)
    (found,) = listed(operator, webhook)
    assert (found["status"], found["settledTime"]) == ("pending", None)
    assert (found["attemptCount"], found["nextAttemptTime"]) == (2, due)
    page = operator.get(path).json()
    assert page["scheduledRetries"] == {"waitingEvents": 1, "nextAttemptAt": due}
    assert listed(operator, webhook, status="failed") == []
    place = f"/deliveries/{found['id']}"
    until(lambda: len(operator.get(place).json()["attempts"]) == 2, "the log has its attempts")
    detail = operator.get(place).json()
    assert (detail["status"], detail["pendingResends"]) == ("pending", 0)
    assert (detail["attemptCount"], detail["nextAttemptTime"]) == (2, due)
    assert [each["trigger"] for each in detail["attempts"]] == ["live", "live"]
    # A request makes the retry due, instead of a second attempt.
    receiver.answer(204)
    answer = operator.post(f"/deliveries/{found['id']}/resend")
    assert answer.status_code == 202, answer.text
    until(lambda: listed(operator, webhook, status="succeeded"), "it has succeeded")
    assert operator.get(path).json()["scheduledRetries"] is None
    (found,) = listed(operator, webhook)
    assert (found["attemptCount"], found["nextAttemptTime"]) == (3, None)
    assert found["responseStatus"] == 204
    assert listed(operator, webhook, limit=1) == [found]
    detail = operator.get(f"/deliveries/{found['id']}").json()
    assert [each["trigger"] for each in detail["attempts"]] == ["live", "live", "retry"]
    assert (detail["status"], detail["nextAttemptTime"]) == ("succeeded", None)
    assert receiver.taken == ["evt_51"]


def test_a_copy_of_an_event_has_the_status_of_its_scheduled_retries(
    scene: ConsoleScene, operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread
) -> None:
    path = f"/webhooks/{webhook.id}"
    assert operator.patch(path, json={"retrySchedule": [1, 3_600]}).status_code == 200
    receiver.answer(503)
    published = event(52)
    scene.owe(webhook, published, published)
    until(lambda: len(listed(operator, webhook, status="pending")) == 2, "both wait")
    until(lambda: len(scene.store.retry_progress(webhook.id)) == 2, "for a scheduled retry")
    progress, _ = scene.store.retry_progress(webhook.id).values()
    due = format_time(progress.next_ms or 0)
    copy, first = listed(operator, webhook)
    for found in (copy, first):
        assert (found["status"], found["nextAttemptTime"]) == ("pending", due)
    detail = operator.get(f"/deliveries/{copy['id']}").json()
    assert (detail["status"], detail["nextAttemptTime"]) == ("pending", due)
    assert operator.get(path).json()["scheduledRetries"]["waitingEvents"] == 1
    receiver.answer(204)
    answer = operator.post(f"/deliveries/{copy['id']}/resend")
    assert answer.status_code == 202, answer.text
    until(lambda: len(listed(operator, webhook, status="succeeded")) == 2, "both have succeeded")
    assert listed(operator, webhook, status="failed") == []
    detail = operator.get(f"/deliveries/{copy['id']}").json()
    assert (detail["status"], detail["attempts"][-1]["trigger"]) == ("succeeded", "retry")
    assert receiver.taken == ["evt_52"]
