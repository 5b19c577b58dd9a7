"""docs/pipeline.md says of columns, options and commands what the code has."""

import ast
import inspect
import re
import shlex

import click
import pytest
from pyspark.sql.types import StructType

from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS, REPLAY_OUTCOMES
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from spark_jobs import contracts
from spark_jobs.cli import COMMANDS, main
from spark_jobs.source import options
from spark_jobs.source.query import columns, option_values
from tests.unit.docs.doc_pages import page, table

PAGE = page("pipeline.md")
READ = "## Read the log from Spark"


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def test_the_columns_are_the_sources() -> None:
    rows = table(PAGE, READ)
    shown = {
        name: row["type"] for row in rows for name in names(row["column"]) if name != "headers"
    }
    schema = columns.default_schema(include_headers=False)
    assert shown == {field.name: field.dataType.simpleString() for field in schema} | {
        # As people write it.
        "offset": "long"
    }


def test_the_options_are_those_that_are_read() -> None:
    shown = {name for row in table(PAGE, READ, 1) for name in names(row["option"])}
    code = inspect.getsource(options) + inspect.getsource(option_values)
    words = {
        node.value
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    limits = {f"{end}{kind}" for end in ("starting", "ending") for kind in ("Offsets", "Timestamp")}
    assert shown <= words | limits | {"startingOffsetsByTimestamp", "kafka.bootstrap.servers"}
    camel = {word for word in words if re.fullmatch(r"[a-z]+(?:[A-Z][a-z]+)+", word)}
    assert camel <= shown
    assert {name for name in shown if not name.startswith("kafka.")} == set(options.NAMES)


def test_the_raw_columns_are_the_contracts() -> None:
    rows = table(PAGE, "## The nightly load")
    shown = [name for row in rows for name in names(row["column of the raw table"])]
    assert shown == contracts.RECORDS.names


def test_every_column_of_every_table_is_described() -> None:
    tables = {name: each for name, each in vars(contracts).items() if isinstance(each, StructType)}
    assert len(tables) >= 6
    for name, schema in tables.items():
        for field in schema:
            assert field.metadata.get("comment"), f"{name}.{field.name}"


def commands() -> list[list[str]]:
    """Each whole command of the page, in words, from `rewind-jobs` or `spark-submit` on."""
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    code = [*blocks.splitlines(), *re.findall(r"`(rewind-jobs [^`]*--[^`]*)`", PAGE)]
    parts = [part for line in code for part in line.split("&&")]
    return [shlex.split(part[part.index("rewind-jobs ") :]) for part in parts if is_command(part)]


def is_command(part: str) -> bool:
    return re.search(r"rewind-jobs [a-z-]+ --", part) is not None


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_each_command_is_taken(words: list[str]) -> None:
    job = main.get_command(click.Context(main), words[1])
    assert job is not None
    context = job.make_context(words[1], words[2:])
    topics = context.params.get("topics")
    if words[1] == "load":
        assert set(names(topics or "")) == {
            *(EVENTS, DELIVERY_LOG, DELIVERY_OUTCOMES, REPLAY_OUTCOMES, AUDIT_TOPIC)
        }


def test_each_job_is_documented() -> None:
    assert commands()
    for name in COMMANDS:
        assert f"rewind-jobs {name}" in PAGE, name
