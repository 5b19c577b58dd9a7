"""The console on a database that hangs, and concurrent sessions."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import delete
from sqlalchemy.engine import make_url

from app.config import Settings
from app.domain.accounts import Scope
from app.store import Store
from app.store.engine import ANSWER_S, migration_engine
from app.store.tables import console_sessions
from tests.support.database.api_keys import issue_key
from tests.support.database.mariadb import MariaDbServer
from tests.support.database.migrated import make_migrated
from tests.support.processes.server_process import SECRET_KEY, ServerProcess
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import DEADLINE_S

PROGRAM = """
import sys
from app.api.application import create_app
from app.http.server import serve
from app.config import Settings
from app.console.application import ConsoleSwitch, create_console

def create(services):
    return ConsoleSwitch(create_app(services), create_console(services))

sys.exit(serve(Settings.model_validate_json(sys.argv[1]), create))
"""


@pytest.fixture
def link(mariadb: MariaDbServer) -> Iterator[TcpLink]:
    with TcpLink(mariadb.port) as link:
        yield link


def database_part(lines: Iterator[str], words: str) -> None:
    """Wait until the stream reports the database with these words."""
    for line in lines:
        if line.startswith("data: {"):
            change = json.loads(line.removeprefix("data: "))
            if change["id"] == "health" and f">{words}<" in change["parts"].get("database", ""):
                return
    pytest.fail("the stream has ended")


def test_a_database_that_hangs_is_reported_and_does_not_delay_the_shutdown(
    mariadb: MariaDbServer, link: TcpLink, tmp_path: Path
) -> None:
    database = mariadb.create_database()
    make_migrated(database)
    store = Store.open(database)
    _, token = issue_key(store, "platform", Scope.OPERATOR, "")
    store.close()
    through = make_url(database).set(port=link.port).render_as_string(hide_password=False)
    settings = Settings(
        data_dir=tmp_path,
        bootstrap_servers="127.0.0.1:1",
        database=through,
        secret_key=SECRET_KEY,
        port=0,
    )
    program = ["-c", PROGRAM, settings.model_dump_json()]
    with ServerProcess(program, tmp_path / "api.stderr") as api:
        url = api.start("rewind api ready on ").strip()
        with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
            assert http.post("/console/sign-in", data={"key": token}).status_code == 303
            watch = {"watch": "health,counters"}
            with http.stream("GET", "/console/live", params=watch) as answer:
                lines = answer.iter_lines()
                database_part(lines, "up")
                link.stall()
                # The database does not answer until the end of the test.
                database_part(lines, "unreachable")
                os.kill(api.pid, signal.SIGTERM)
                # Sooner than the timeout of the database driver.
                assert api.wait(ANSWER_S) == 0


def test_a_sign_in_does_not_wait_for_the_deletion_of_sessions(mariadb: MariaDbServer) -> None:
    database = mariadb.create_database()
    make_migrated(database)
    with closing(Store.open(database)) as store:
        key, _ = issue_key(store, "platform", Scope.OPERATOR, "")
        store.open_session(key.id, "over", 0.0)
        with migration_engine(database) as engine, engine.begin() as deleting:
            deleting.execute(delete(console_sessions))
            store.open_session(key.id, "new", 60.0)
        assert store.find_session_key("new") == key
