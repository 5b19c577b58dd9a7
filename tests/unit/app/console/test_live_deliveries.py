"""Which deliveries of open pages are looked up."""

import pytest
from fastapi import FastAPI

from app.console.live_deliveries import LOOKUPS_PER_ROUND, DeliveryUpdates
from app.console.live_pages import COUNTERS, HEALTH, OpenPage
from app.console.rendering import environment
from app.domain.model import ReplayFilter

pytestmark = pytest.mark.anyio


def open_page(**versions: str) -> OpenPage:
    return OpenPage(None, ReplayFilter(), versions)


def test_only_pending_deliveries_are_looked_up() -> None:
    page = open_page(dlv_1="pending.0", dlv_2="failed.3", rpl_1="a", dlv_3="pending.2")
    page.versions |= {"job:rpl_2": "", COUNTERS: "", HEALTH: ""}
    assert page.pending_deliveries == {"dlv_1", "dlv_3"}
    assert page.replay_ids == {"rpl_1", "rpl_2"}
    page.queue_update("dlv_1", "succeeded.1", "")
    assert page.pending_deliveries == {"dlv_3"}


async def test_deliveries_are_looked_up_in_turn(application: FastAPI) -> None:
    updates = DeliveryUpdates(application.state.services, environment(60.0))
    pending = {f"dlv_{number:02}" for number in range(LOOKUPS_PER_ROUND * 2 + 1)}
    rounds = [updates._take_due(pending) for _ in range(3)]
    assert all(len(due) == LOOKUPS_PER_ROUND for due in rounds)
    assert set().union(*rounds) == pending
    new = "dlv_99"
    assert new in updates._take_due({new, *pending})
    assert updates._take_due({new}) == [new]
    assert updates._take_due(set()) == []
    # An id that no service has returned costs no look-up.
    await updates.queue_changes([open_page(dlv_x="pending.0")])
