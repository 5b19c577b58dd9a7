"""Which deliveries of open pages are looked up, and what the pages receive."""

import threading
from dataclasses import replace

import pytest
from fastapi import FastAPI
from jinja2 import Environment

from app.console import live_deliveries
from app.console.delivery_parts import delivery_parts
from app.console.live_deliveries import LOOKUPS_PER_ROUND, DeliveryUpdates, LookupTurns
from app.console.live_pages import COUNTERS, HEALTH, OpenPage
from app.console.rendering import environment
from app.domain.deliveries import DeliveryPlace, DeliveryStatus, format_delivery_id
from app.domain.model import ReplayFilter, Webhook
from app.log.deliveries import DeliveryDetail, DeliveryReader, DeliverySummary
from app.log.errors import InspectionsBusy, LogError, LogUnavailable, NotInLog
from tests.support.http.api_clients import Issued
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.anyio


class PlacedDeliveries(DeliveryReader):
    """Deliveries by place, without a log; those with an error cannot be read."""

    def __init__(self) -> None:
        self._webhooks: list[str] = []
        self.errors: dict[str, LogError] = {}

    def add(self, webhook: Webhook) -> str:
        """Return the id of a new delivery."""
        self._webhooks.append(webhook.id)
        return format_delivery_id(DeliveryPlace("here", 0, len(self._webhooks) - 1))

    def delivery(self, place: DeliveryPlace) -> DeliveryDetail:
        if error := self.errors.get(format_delivery_id(place)):
            raise error
        if place.offset >= len(self._webhooks):
            raise NotInLog("no such delivery")
        summary = DeliverySummary(
            place, self._webhooks[place.offset], "evt_1", "created", 0, DeliveryStatus.PENDING
        )
        return DeliveryDetail(summary, b"{}", (), ())


@pytest.fixture
def deliveries() -> PlacedDeliveries:
    return PlacedDeliveries()


@pytest.fixture
def updates(
    application: FastAPI, deliveries: PlacedDeliveries, monkeypatch: pytest.MonkeyPatch
) -> DeliveryUpdates:
    monkeypatch.setattr(live_deliveries, "ROUND_S_MAX", DEADLINE_S)
    services = replace(application.state.services, deliveries=deliveries)
    return DeliveryUpdates(services, environment(60.0))


def open_page(versions: dict[str, str], viewer: Issued | None = None) -> OpenPage:
    return OpenPage(None if viewer is None else viewer[0].account.id, ReplayFilter(), versions)


def test_only_pending_deliveries_are_looked_up() -> None:
    page = open_page(
        {"dlv_1": "pending.0", "dlv_2": "failed.3", "dlv_3": "pending.2"}
        | {"rpl_1": "a", "job:rpl_2": "", COUNTERS: "", HEALTH: ""}
    )
    assert page.pending_deliveries == {"dlv_1", "dlv_3"}
    assert page.replay_ids == {"rpl_1", "rpl_2"}
    page.queue_update("dlv_1", "succeeded.1", "")
    assert page.pending_deliveries == {"dlv_3"}
    page.remove("dlv_3")
    assert not page.pending_deliveries


def take(turns: LookupTurns, at_most: int = LOOKUPS_PER_ROUND) -> list[str]:
    taken = turns.first(at_most)
    for item in taken:
        turns.move_back(item)
    return taken


def test_deliveries_of_an_account_are_looked_up_in_turn() -> None:
    turns = LookupTurns()
    pending = {f"dlv_{number:02}" for number in range(LOOKUPS_PER_ROUND * 2 + 1)}
    rounds = []
    for _ in range(3):
        turns.replace({"acc_1": pending})
        rounds.append(take(turns))
    assert all(len(due) == LOOKUPS_PER_ROUND for due in rounds)
    assert set().union(*rounds) == pending
    turns.replace({"acc_1": {"dlv_99"}})
    assert take(turns) == ["dlv_99"]
    turns.replace({})
    assert take(turns) == []


def test_new_deliveries_wait_for_known_ones() -> None:
    turns = LookupTurns()
    turns.replace({"acc_1": {"dlv_7", "dlv_8", "dlv_9"}})
    assert take(turns, 1) == ["dlv_7"]
    turns.replace({"acc_1": {"dlv_1", "dlv_7", "dlv_8", "dlv_9"}})
    assert take(turns, 4) == ["dlv_8", "dlv_9", "dlv_7", "dlv_1"]


def test_an_account_with_always_new_deliveries_delays_no_other() -> None:
    turns = LookupTurns()
    accounts = [f"acc_{number}" for number in range(LOOKUPS_PER_ROUND + 2)]
    few: dict[str | None, set[str]] = {account: {f"dlv_{account}"} for account in accounts}
    looked_up: set[str] = set()
    for number in range(2):
        many = {f"dlv_0_{number}_{each}" for each in range(1_000)}
        turns.replace({None: many, **few})
        looked_up.update(take(turns))
    # Two rounds have a turn for each of the eleven.
    assert set().union(*few.values()) < looked_up


def test_a_delivery_on_pages_of_several_accounts_is_looked_up_once() -> None:
    turns = LookupTurns()
    turns.replace({None: {"dlv_1", "dlv_2"}, "acc_1": {"dlv_1"}})
    assert take(turns) == ["dlv_1", "dlv_2"]
    assert take(turns, 1) == ["dlv_1"]


async def test_what_a_viewer_cannot_see_is_not_looked_up_again(
    updates: DeliveryUpdates,
    deliveries: PlacedDeliveries,
    webhook: Webhook,
    developer: Issued,
    other_developer: Issued,
) -> None:
    item = deliveries.add(webhook)
    missing = format_delivery_id(DeliveryPlace("here", 0, 99))
    versions = {item: "pending.7", missing: "pending.0"}
    pages = [open_page(dict(versions), viewer) for viewer in (None, developer, other_developer)]
    operators, owners, others = pages
    await updates.queue_changes(pages)
    assert operators.versions == owners.versions == {item: "pending.0"}
    assert operators.pending.keys() == owners.pending.keys() == {item}
    assert others.versions == others.pending == {}


async def test_an_update_is_rendered_once_for_all_pages_and_not_on_the_event_loop(
    updates: DeliveryUpdates,
    deliveries: PlacedDeliveries,
    webhook: Webhook,
    developer: Issued,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered: list[tuple[str, bool]] = []
    threads: set[threading.Thread] = set()

    def counted(
        templates: Environment, detail: DeliveryDetail, *, is_operator: bool
    ) -> dict[str, str]:
        rendered.append((detail.summary.id, is_operator))
        threads.add(threading.current_thread())
        return delivery_parts(templates, detail, is_operator=is_operator)

    monkeypatch.setattr(live_deliveries, "delivery_parts", counted)
    items = [deliveries.add(webhook), deliveries.add(webhook)]
    versions = dict.fromkeys(items, "pending.7")
    pages = [open_page(dict(versions), viewer) for viewer in 3 * (None, developer)]
    await updates.queue_changes(pages)
    assert sorted(rendered) == sorted((item, each) for item in items for each in (False, True))
    assert threading.current_thread() not in threads
    assert all(page.pending.keys() == set(items) for page in pages)
    await updates.queue_changes(pages)
    assert len(rendered) == 4


class WatchedPage(OpenPage):
    """A page that remembers the threads that looked for its pending deliveries."""

    @property
    def pending_deliveries(self) -> set[str]:
        self.__dict__.setdefault("threads", set()).add(threading.current_thread())
        return super().pending_deliveries


async def test_pending_deliveries_are_not_looked_for_on_the_event_loop(
    updates: DeliveryUpdates, deliveries: PlacedDeliveries, webhook: Webhook
) -> None:
    page = WatchedPage(None, ReplayFilter(), {deliveries.add(webhook): "pending.0"})
    await updates.queue_changes([page])
    assert page.__dict__["threads"]
    assert threading.current_thread() not in page.__dict__["threads"]


async def test_a_delivery_that_cannot_be_read_does_not_delay_others(
    updates: DeliveryUpdates, deliveries: PlacedDeliveries, webhook: Webhook
) -> None:
    failing, *others = sorted(deliveries.add(webhook) for _ in range(3))
    deliveries.errors[failing] = LogUnavailable("the log did not answer in time")
    page = open_page(dict.fromkeys((failing, *others), "pending.7"))
    await updates.queue_changes([page])
    assert page.pending.keys() == set(others)
    deliveries.errors.clear()
    await updates.queue_changes([page])
    assert page.pending.keys() == {failing, *others}


async def test_a_round_ends_when_look_ups_are_busy_or_its_time_is_over(
    updates: DeliveryUpdates,
    deliveries: PlacedDeliveries,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = sorted(deliveries.add(webhook) for _ in range(2))
    page = open_page(dict.fromkeys((first, second), "pending.7"))
    deliveries.errors[first] = InspectionsBusy("limit of concurrent look-ups reached")
    await updates.queue_changes([page])
    with monkeypatch.context() as patch:
        patch.setattr(live_deliveries, "ROUND_S_MAX", 0.0)
        await updates.queue_changes([page])
    assert not page.pending
    await updates.queue_changes([page])
    assert page.pending.keys() == {second}
