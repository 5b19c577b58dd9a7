"""The table of live backlogs: one row per webhook and data centre, while events are retried."""

from dataclasses import replace

from sqlalchemy import update

from app.domain.live_backlog import CURRENT_MS, LiveBacklog
from app.store import Store
from app.store.engine import open_engine
from app.store.live_backlogs import KEPT_MS
from app.store.tables import live_backlogs

BACKLOG = LiveBacklog(9, 4, False, 503, "HTTP 503", 1_000, 3_000)


def age(database_url: str, by_ms: int) -> None:
    engine = open_engine(database_url)
    with engine.begin() as connection:
        values = {"updated_ms": live_backlogs.c.updated_ms - by_ms}
        connection.execute(update(live_backlogs).values(values))
    engine.dispose()


def test_a_backlog_is_shown_until_it_is_removed(store: Store) -> None:
    store.record_live_backlogs({"wh_1": replace(BACKLOG, waiting=1), "wh_2": BACKLOG}, origin="a")
    store.record_live_backlogs({"wh_1": BACKLOG}, origin="a")
    assert store.live_backlogs(["wh_1", "wh_3"]) == {"wh_1": BACKLOG}
    store.record_live_backlogs({"wh_1": None}, origin="b")
    assert store.live_backlogs(["wh_1", "wh_2"]) == {"wh_1": BACKLOG, "wh_2": BACKLOG}
    store.record_live_backlogs({"wh_1": None}, origin="a")
    assert store.live_backlogs(["wh_1", "wh_2"]) == {"wh_2": BACKLOG}
    assert store.live_backlogs([]) == {}


def test_backlogs_of_data_centres_are_added(store: Store) -> None:
    other = LiveBacklog(1, 1, True, None, "no response", 2_000, 2_500)
    store.record_live_backlogs({"wh_1": BACKLOG}, origin="a")
    store.record_live_backlogs({"wh_1": other}, origin="b")
    both = LiveBacklog(10, 5, False, None, "no response", 2_000, 2_500)
    assert store.live_backlogs(["wh_1"]) == {"wh_1": both}


def test_the_backlog_of_a_process_that_ended_is_not_shown(store: Store, database_url: str) -> None:
    store.record_live_backlogs({"wh_1": BACKLOG}, origin="a")
    age(database_url, CURRENT_MS + 1_000)
    assert store.live_backlogs(["wh_1"]) == {}
    age(database_url, KEPT_MS)
    store.record_live_backlogs({"wh_2": BACKLOG}, origin="a")
    engine = open_engine(database_url)
    with engine.connect() as connection:
        rows = connection.execute(live_backlogs.select()).all()
    engine.dispose()
    assert [row.webhook_id for row in rows] == ["wh_2"]
