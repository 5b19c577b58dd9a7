from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import Connection, select, update

from app.domain.model import Claim
from app.domain.states import ACTIVE, TERMINAL, TRANSITIONS, ReplayEvent, ReplayState
from app.store.engine import Database
from app.store.tables import replays
from app.store.transitions import transition


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


@pytest.mark.parametrize("event", list(ReplayEvent))
def test_the_sql_of_transitions_agrees_with_the_table_of_states(
    database: Database, claimed: Claim, event: ReplayEvent
) -> None:
    row = replays.c.id == claimed.replay.id
    for state in ReplayState:
        in_state = update(replays).where(row).values(state=str(state), finished_ms=None)
        database.write(partial(Connection.execute, statement=in_state))
        moved = database.write(lambda db: db.execute(transition(event).where(row)).rowcount)
        found = database.read(lambda db: db.execute(select(replays).where(row)).one())
        expected = TRANSITIONS[state].get(event)
        assert moved == (expected is not None)
        assert found.state == (expected or state)
        assert (found.finished_ms is not None) == (expected in TERMINAL and state in ACTIVE)
