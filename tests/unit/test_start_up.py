"""What our programs import before they have anything to do: users wait for it at each command."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import main as rewind
from logbroker.cli import main as logbroker
from logbroker.lazy_group import LazyCommand, LazyGroup
from spark_jobs.cli import main as rewind_jobs

PROGRAMS = {"app": rewind, "logbroker": logbroker, "spark_jobs": rewind_jobs}

HEAVY = {
    *("alembic", "fastapi", "fastavro", "httpx", "jinja2", "kafka", "kazoo", "matplotlib", "numpy"),
    *("pandas", "prometheus_client", "pyarrow", "pydantic", "pyspark", "sqlalchemy", "uvicorn"),
}
"""Packages that take longer to import than a command takes for all the rest."""

HELP_OF_ALL = """
import json, sys
from importlib import import_module
import click

def walk(command, context):
    command.get_help(context)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        child = command.get_command(context, name)
        walk(child, click.Context(child, info_name=name, parent=context))

main = import_module(f"{sys.argv[1]}.cli").main
walk(main, click.Context(main))
print(json.dumps(sorted(sys.modules)))
"""


def test_a_group_shows_the_first_sentence_of_its_commands() -> None:
    for program in PROGRAMS.values():
        assert isinstance(program, LazyGroup)
        context = click.Context(program)
        shown = click.HelpFormatter(width=1_000)
        program.format_commands(context, shown)
        lines = [line.split(maxsplit=1) for line in shown.getvalue().splitlines()[1:]]
        commands = {name: program.get_command(context, name) for name, _ in lines}
        assert list(commands) == program.list_commands(context)
        for name, text in lines:
            command = commands[name]
            assert command is not None
            assert command.name == name
            assert text == command.get_short_help_str(1_000)


def test_an_unknown_command_is_not_found() -> None:
    group = LazyGroup("tools", lazy_commands={"cut": LazyCommand("no_such_module:cut", "Cut.")})
    assert group.get_command(click.Context(group), "sew") is None


def test_a_command_without_its_packages_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_a_package.py").write_text("import a_package_that_does_not_exist\n")
    monkeypatch.syspath_prepend(tmp_path)
    commands = {"cut": LazyCommand("needs_a_package:cut", "Cut.")}
    run = CliRunner().invoke(LazyGroup("tools", lazy_commands=commands, extra="garden"), ["cut"])
    assert run.exit_code == 1
    assert "a_package_that_does_not_exist" in run.stderr
    assert "pip install 'rewind[garden]'" in run.stderr


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS)
def test_help_needs_no_heavy_package(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", HELP_OF_ALL, program], capture_output=True, text=True, check=True
    )
    modules = set(json.loads(run.stdout))
    assert f"{program}.cli" in modules
    assert modules & HEAVY == set()


@pytest.mark.processes
def test_a_command_that_calls_the_api_does_without_the_database(tmp_path: Path) -> None:
    # Nothing listens at port 0.
    arguments = ["--api-url", "http://127.0.0.1:0", "--data-dir", str(tmp_path)]
    program = [sys.executable, "-X", "importtime", "-m", "app", "replays", "list", *arguments]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "does not answer" in run.stderr
    assert set(map(_imported, run.stderr.splitlines())) & HEAVY == {"httpx", "pydantic"}


@pytest.mark.processes
def test_a_lone_broker_is_ready_without_what_others_need(tmp_path: Path) -> None:
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "log")]
    program = [sys.executable, "-X", "importtime", "-m", "logbroker", *arguments]
    imported = set()
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        for line in broker.stderr:
            if line.startswith("logbroker ready on "):
                break
            imported.add(_imported(line))
        broker.terminate()
        broker.stderr.read()
    assert "logbroker.server.broker" in imported
    # Its messages are kafka-python's.
    assert imported & (HEAVY | {"asyncio", "confluent_kafka"}) == {"kafka"}


@pytest.mark.processes
def test_servers_of_the_service_start_without_what_unreadable_batches_need() -> None:
    program = "import app.api.application, app.live.server, app.replay_workers.server, sys;"
    run = subprocess.run(
        [sys.executable, "-c", f"{program} print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(run.stdout.split())
    assert modules & HEAVY == {"fastapi", "prometheus_client", "pydantic", "sqlalchemy"}


def _imported(line: str) -> str:
    """The module that a line of `-X importtime` is about."""
    return line.rpartition("|")[2].strip()
