import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import alembic.config
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from app.store import SchemaOutdated, SchemaUnknown, Store, is_migrated, migrate
from app.store.engine import open_engine
from app.store.tables import REVISION, metadata
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S

ALEMBIC_INI = Path(__file__).parents[4] / "alembic.ini"


def test_migrations_result_in_the_declared_tables(empty_database_url: str) -> None:
    migrate(empty_database_url)
    engine = open_engine(empty_database_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_database_is_migrated_once(empty_database_url: str) -> None:
    assert not is_migrated(empty_database_url)
    migrate(empty_database_url)
    migrate(empty_database_url)
    assert is_migrated(empty_database_url)


@pytest.mark.processes
def test_concurrent_migrations_of_processes_take_turns(
    empty_database_url: str, tmp_path: Path
) -> None:
    program = "import sys; from app.store import migrate; migrate(sys.argv[1])"
    arguments = ["-c", program, empty_database_url]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(ServerProcess(arguments, tmp_path / f"{number}.log"))
            for number in range(2)
        ]
        for process in processes:
            process.launch()
        assert [process.wait() for process in processes] == [0, 0]
    assert is_migrated(empty_database_url)


def test_a_migration_waits_for_another_writer_of_a_new_file(tmp_path: Path) -> None:
    file = tmp_path / "rewind.db"
    with (
        closing(sqlite3.connect(file, isolation_level=None)) as other,
        ThreadPoolExecutor() as threads,
    ):
        other.execute("BEGIN IMMEDIATE")
        migration = threads.submit(migrate, f"sqlite:///{file}")
        with pytest.raises(TimeoutError):
            migration.result(0.3)
        other.execute("COMMIT")
        migration.result(DEADLINE_S)
    assert is_migrated(f"sqlite:///{file}")


def test_concurrent_migrations_of_threads_take_turns(empty_database_url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate, [empty_database_url] * 4))
    assert is_migrated(empty_database_url)


def test_the_alembic_command_uses_the_database_of_the_environment(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWIND_DATABASE", empty_database_url)
    alembic.config.main(["--config", str(ALEMBIC_INI), "upgrade", "head"])
    assert is_migrated(empty_database_url)
    alembic.config.main(["--config", str(ALEMBIC_INI), "downgrade", "base"])
    assert not is_migrated(empty_database_url)


def test_a_missing_migration_raises_schema_outdated(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    with pytest.raises(SchemaOutdated, match=f"schema is None; needed is {REVISION}"):
        store.check()
    migrate(empty_database_url)
    store.check()
    store.close()


def test_a_database_of_a_later_version_is_not_changed(migrated_url: str) -> None:
    engine = open_engine(migrated_url)
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(SchemaUnknown, match="schema is 9999, which this version does not know"):
        migrate(migrated_url)


def test_the_revision_of_the_tables_is_that_of_the_last_migration() -> None:
    scripts = ScriptDirectory.from_config(alembic.config.Config(ALEMBIC_INI))
    assert scripts.get_current_head() == REVISION


@pytest.mark.processes
def test_alembic_is_not_loaded_for_a_migrated_database(migrated_url: str) -> None:
    program = (
        "import sys; from app.store import Store, migrate; url = sys.argv[1];"
        " Store.open(url).check(); migrate(url); sys.exit('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, migrated_url], check=False)
    assert done.returncode == 0
