"""The table of handovers: requested by workers, read and acknowledged by live processes."""

import time
from dataclasses import replace

from app.domain.handovers import KEPT_MS, LiveHandover
from app.domain.model import OffsetRange, Window
from app.store import Store

NOW_MS = time.time_ns() // 1_000_000
HANDOVER = LiveHandover(
    "rpl_1", "wh_1", OffsetRange(3, 10, 20), Window(NOW_MS - 1_000, NOW_MS), ("follow.*",), NOW_MS
)
OLD = replace(
    HANDOVER, replay_id="rpl_old", window=Window(0, NOW_MS - KEPT_MS - 60_000), event_types=()
)


def test_a_handover_is_read_until_it_expires(store: Store) -> None:
    store.request_handover(OLD, origin="a")
    store.request_handover(HANDOVER, origin="a")
    # As by a second worker that takes the replay over.
    store.request_handover(HANDOVER, origin="a")
    found = store.handovers(0, origin="a")
    assert found.handovers == (HANDOVER,)
    assert store.handovers(found.as_of_ms, origin="a").handovers == (HANDOVER,)
    assert store.handovers(found.as_of_ms + 10**9, origin="a").handovers == ()
    assert store.handovers(0, origin="b").handovers == ()


def test_a_handover_is_acknowledged_once_for_all_claims(store: Store) -> None:
    store.request_handover(HANDOVER, origin="a")
    assert not store.is_handover_acknowledged("rpl_1")
    assert not store.is_handover_acknowledged("rpl_none")
    store.acknowledge_handover("rpl_1")
    store.request_handover(HANDOVER, origin="a")
    assert store.is_handover_acknowledged("rpl_1")
    (found,) = store.handovers(0, origin="a").handovers
    assert found == replace(HANDOVER, is_acknowledged=True)
