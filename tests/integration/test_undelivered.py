"""The list of failed and pending deliveries of several webhooks, on a real log and live path."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from app.cli import main
from app.config import Settings
from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryStatus
from app.domain.model import Webhook, Window
from app.domain.tallies import Span
from app.domain.windows import format_time
from app.log.deliveries import (
    DeliveryQuery,
    DeliveryReader,
    DeliverySummary,
    WebhookGroup,
    merge_pages,
    page,
)
from app.log.deliveries.merging import IS_OVER
from app.log.history import LogHistory
from app.log.topics import DELIVERY_OUTCOMES
from tests.support.http.api_clients import client_at
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene
from tests.support.service.live_service import event, now_ms

EVENTS = 4


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleScene]:
    """Log, database, API and live path, with the webhooks of `webhooks`."""
    folder: Path = tmp_path_factory.mktemp("undelivered")
    options = ("--stop-on-stdin-close", "--group-initial-rebalance-delay-ms", "0")
    with (
        BrokerProcess(folder / "log", *options) as broker,
        ConsoleScene(folder, broker.serve(), f"sqlite:///{folder}/rewind.db") as scene,
    ):
        scene.make()
        scene.start_api()
        scene.live(live_delays_s="0,0.05")
        yield scene


@pytest.fixture(scope="module")
def webhooks(scene: ConsoleScene) -> Iterator[list[Webhook]]:
    """Thirteen webhooks that rejected `EVENTS` events each, of two accounts; one accepted all."""
    for account in ("alice", "mallory"):
        scene.key(account, Scope.DEVELOPER)
    with ReceiverThread() as failing, ReceiverThread() as healthy:
        failing.answer(422)
        made = [
            scene.webhook_of(account, failing)
            for account, number in (("alice", 11), ("mallory", 2))
            for _ in range(number)
        ]
        accepting = scene.webhook_of("alice", healthy)
        everyone = list(enumerate((*made, accepting)))
        for place, each in everyone:
            scene.owe(each, event(place, "block.created"))
        until(lambda: len(scene.read(DELIVERY_OUTCOMES)) == len(everyone), "the first are settled")
        for number in range(1, EVENTS):
            for place, each in everyone:
                scene.owe(each, event(100 * number + place))

        def are_counted() -> bool:
            found = scene.store.sum_tallies([each.id for each in made], Span.EVENT, 0)
            return sum(each.failed for each in found.values()) == EVENTS * len(made)

        until(are_counted, "all failures are counted")
        yield made


@pytest.fixture
def clients(scene: ConsoleScene, webhooks: list[Webhook]) -> Iterator[dict[str, httpx.Client]]:
    with ExitStack() as stack:
        yield {
            "operator": stack.enter_context(client_at(scene.origin, scene.key())),
            **{
                each: stack.enter_context(client_at(scene.origin, scene.key(each, Scope.DEVELOPER)))
                for each in ("alice", "mallory")
            },
        }


def pages(api: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    """All pages of a list."""
    found: list[dict[str, Any]] = []
    while True:
        answer = api.get("/deliveries", params={"status": "failed"} | query)
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        if found[-1]["nextCursor"] is None:
            return found
        query["cursor"] = found[-1]["nextCursor"]


def items(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for page in found for each in page["items"]]


def test_an_account_gets_each_of_its_failures_once_the_latest_first(
    clients: dict[str, httpx.Client], webhooks: list[Webhook]
) -> None:
    own = webhooks[11:]
    found = pages(clients["mallory"], limit=3)
    assert [len(each["items"]) for each in found] == [3, 3, 2]
    listed = items(found)
    assert len({each["id"] for each in listed}) == EVENTS * len(own)
    assert {each["webhookId"] for each in listed} == {each.id for each in own}
    assert {each["status"] for each in listed} == {"failed"}
    times = [each["settledTime"] for each in listed]
    assert times == sorted(times, reverse=True)
    for each in own:
        single = clients["mallory"].get(f"/webhooks/{each.id}/deliveries?status=failed").json()
        assert single["items"] == [one for one in listed if one["webhookId"] == each.id]
    assert {each["omittedWebhooks"] for each in found} == {0}
    foreign = clients["mallory"].get("/deliveries?status=failed&accountId=acc_other")
    assert (foreign.status_code, foreign.json()["field"]) == (403, "accountId")


def test_a_list_names_the_webhooks_that_it_leaves_out(
    clients: dict[str, httpx.Client], webhooks: list[Webhook]
) -> None:
    found = pages(clients["operator"], limit=7)
    assert len({each["id"] for each in items(found)}) == len(items(found)) == EVENTS * 10
    for each in found:
        assert len(each["webhookIds"]) == 10
        assert (each["omittedWebhooks"], len(each["omittedWebhookIds"])) == (3, 3)
        named = {*each["webhookIds"], *each["omittedWebhookIds"]}
        assert named == {each.id for each in webhooks}
    (of_account,) = pages(clients["operator"], accountId=webhooks[-1].account_id)
    assert (len(of_account["items"]), of_account["omittedWebhooks"]) == (EVENTS * 2, 0)


def test_a_cursor_opens_no_list_of_another_account(
    clients: dict[str, httpx.Client], webhooks: list[Webhook]
) -> None:
    first = clients["operator"].get("/deliveries?status=failed&limit=1").json()
    query = {"status": "failed", "cursor": first["nextCursor"]}
    foreign = clients["mallory"].get("/deliveries", params=query).json()
    own = {each.id for each in webhooks[11:]}
    assert {each["webhookId"] for each in foreign["items"]} <= own
    assert set(foreign["webhookIds"]) <= own


def test_lists_of_pending_and_skipped_events_have_the_webhooks_with_some(
    scene: ConsoleScene, clients: dict[str, httpx.Client]
) -> None:
    scene.key("waits", Scope.DEVELOPER)
    with ReceiverThread() as receiver:
        receiver.answer(503, retry_after="600")
        waiting = scene.webhook_of("waits", receiver)
        scene.owe(waiting, event(900), event(901))
        until(lambda: len(items(pages(clients["operator"], status="pending"))) == 2, "both wait")
        (found,) = pages(clients["operator"], status="pending")
        assert found["webhookIds"] == [waiting.id]
        assert [each["eventId"] for each in found["items"]] == ["evt_901", "evt_900"]
        assert pages(clients["mallory"], status="pending")[0]["items"] == []
        disabled = scene.webhook_of("waits", receiver)
        scene.store.disable_webhook(disabled.id, "its owner is on holiday")
        scene.owe(disabled, event(902))

        def skipped() -> list[dict[str, Any]]:
            return items(pages(clients["operator"], status="skipped"))

        until(skipped, "it is skipped and counted")
        assert [each["eventId"] for each in skipped()] == ["evt_902"]
        assert pages(clients["mallory"], status="skipped")[0]["items"] == []


def test_a_page_that_has_used_its_budget_is_partial_and_continues(
    scene: ConsoleScene, webhooks: list[Webhook], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first read has two records, and the latest three of a partition are not requested.
    monkeypatch.setattr(page, "RECORDS_MAX", 4)
    settings = Settings(bootstrap_servers=scene.bootstrap_servers, origin="here")
    history = LogHistory(scene.bootstrap_servers)
    outcomes = LogHistory(scene.bootstrap_servers, topic=DELIVERY_OUTCOMES)
    with closing(DeliveryReader(settings, history, outcomes)) as reader:
        by_partition: dict[object, list[str]] = {}
        for each in webhooks:
            by_partition.setdefault(reader.partitions_for(each.id), []).append(each.id)
        groups = tuple(WebhookGroup(tuple(ids)) for ids in by_partition.values())
        found: list[DeliverySummary] = []
        partial = []
        while groups:
            read = reader.pages([blocks_of(each) for each in groups])
            merged = merge_pages(groups, read, limit=1)
            found += merged.items
            partial.append([each.is_partial for each in read])
            groups = tuple(each for each in merged.groups if each.cursor != IS_OVER)
        assert all(partial[0])
        assert sorted(each.webhook_id for each in found) == sorted(each.id for each in webhooks)


def blocks_of(group: WebhookGroup) -> DeliveryQuery:
    ids, cursor = group
    window = Window(now_ms() - 3_600_000, now_ms())
    return DeliveryQuery(
        ids, window, DeliveryStatus.FAILED, "block.*", cursor=cursor, limit=1, may_clip=True
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "succeeded"),
        ("status", "done"),
        ("limit", "101"),
        ("cursor", "x"),
        ("cursor", "s1"),
        ("cursor", "s1-wh_1~"),
        ("cursor", "~".join("s1-wh_1" for _ in range(11))),
        ("eventType", "a b"),
        ("from", "yesterday"),
    ],
)
def test_invalid_queries_are_refused(
    clients: dict[str, httpx.Client], name: str, value: str
) -> None:
    answer = clients["operator"].get("/deliveries", params={"status": "failed"} | {name: value})
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == name


def test_a_list_without_a_status_is_refused(clients: dict[str, httpx.Client]) -> None:
    problem = clients["operator"].get("/deliveries").json()
    assert (problem["field"], problem["value"]) == ("status", None)
    assert problem["allowed"].startswith("failed, pending or skipped")


def test_a_window_limits_the_list_by_event_time(
    clients: dict[str, httpx.Client], webhooks: list[Webhook]
) -> None:
    past = format_time(now_ms() - 3 * 3_600_000)
    (found,) = pages(clients["mallory"], to=past)
    assert (found["items"], found["webhookIds"]) == ([], [])
    (typed,) = pages(clients["mallory"], eventType="block.*")
    assert (len(typed["items"]), len(typed["webhookIds"])) == (2, 2)


def test_the_command_lists_failures_and_names_other_webhooks(
    scene: ConsoleScene, webhooks: list[Webhook]
) -> None:
    options = ["--api-url", scene.origin, "--api-key", scene.key()]
    result = CliRunner().invoke(main, ["deliveries", "list", "--limit", "45", *options])
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert (len(found), {each["status"] for each in found}) == (40, {"failed"})
    note, *ids = result.stderr.splitlines()
    assert note == "rewind: webhooks with failed events that are not listed: 3"
    assert {*ids, *(each["webhookId"] for each in found)} == {each.id for each in webhooks}
    wrong = CliRunner().invoke(main, ["deliveries", "list", "--event-id", "evt_1", *options])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
