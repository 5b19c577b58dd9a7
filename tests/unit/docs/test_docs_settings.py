"""The tables of the operators' pages say what the code says, row by row."""

import re
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from annotated_types import Ge, Le

from app.cli import main as rewind
from app.config import Settings, _variable
from app.webhooks.challenge import crc_problem
from app.webhooks.request import webhook_headers
from app.webhooks.signing import new_secret
from logbroker.cli.group_report import GroupPartition
from logbroker.cli.groups import groups
from logbroker.cli.serve import serve
from logbroker.cli.topic_admin import PartitionState
from logbroker.cli.topics import topics
from logbroker.config import _BROKER_RANGES, LOG_CONFIG_DEFAULTS, TOPIC_SETTINGS
from logbroker.server.metrics.families import FAMILIES, PREFIX
from logbroker.wire.apis import SERVED

DOCS = Path(__file__).parents[3] / "docs"
BROKER_PAGE = (DOCS / "broker.md").read_text()
SERVICE_PAGE = (DOCS / "service.md").read_text()

Row = dict[str, str]

REQUIRED = "required"
NONE = "none"


def section(page: str, heading: str) -> str:
    """The text from a heading to the next one, of whatever level."""
    _, found, rest = page.partition(f"\n{heading}\n")
    assert found, f"there is no {heading!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table(page: str, heading: str, number: int = 0) -> list[Row]:
    """The rows of a table under a heading, by the names of its columns; no backticks."""
    paragraphs = section(page, heading).split("\n\n")
    text = [each.strip() for each in paragraphs if each.strip().startswith("|")][number]
    cells = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]
    names, _rule, *rows = cells
    return [dict(zip(names, row, strict=True)) for row in rows]


def shown(value: Any) -> str:
    """A default as the pages write it: whole numbers without a point, Kafka's words for truth."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def option_default(option: click.Option) -> str:
    if option.required:
        return REQUIRED
    if option.is_flag and not option.secondary_opts:
        return "off"
    default = option.to_info_dict()["default"]  # the bare one may be a sentinel of click's
    return NONE if default is None else shown(default)


def test_every_option_of_logbroker_serve_is_told_with_its_variable_and_default() -> None:
    options = [each for each in serve.params if isinstance(each, click.Option)]
    wanted = {
        " / ".join(option.opts + option.secondary_opts): (
            option.envvar or NONE,
            option_default(option),
        )
        for option in options
    }
    told = {
        row["option"]: (row["variable"], row["default"])
        for row in table(BROKER_PAGE, "## Options of `logbroker serve`")
    }
    assert told == wanted


def test_every_number_of_the_broker_is_told_with_its_range() -> None:
    options = {param.opts[0]: param.name for param in serve.params}
    wanted = {name: f"{lowest} to {highest}" for name, lowest, highest in _BROKER_RANGES}
    told = {
        options[row["option"]]: row["allowed"]
        for row in table(BROKER_PAGE, "## Options of `logbroker serve`")
        if options.get(row["option"]) in wanted
    }
    assert told == {name: wanted[name] for name in told}
    assert len(told) == len(wanted.keys() & options.values())


def asking_commands() -> dict[str, click.Command]:
    """`topics list` and all others that ask a cluster, by the words one types."""
    return {
        f"{group.name} {name}": command
        for group in (topics, groups)
        for name, command in group.commands.items()
    }


def test_every_command_that_asks_a_cluster_is_told() -> None:
    told = table(BROKER_PAGE, "## Asking a cluster")
    assert {" ".join(row["command"].split()[:2]) for row in told} == asking_commands().keys()


def test_every_option_of_a_command_that_asks_a_cluster_is_told() -> None:
    wanted: dict[str, set[str]] = {}
    for name, command in asking_commands().items():
        for param in command.params:
            if isinstance(param, click.Option):
                wanted.setdefault(param.opts[0], set()).add(name)
    told = {
        row["option"]: set(asking_commands() if row["of"] == "all" else row["of"].split(", "))
        for row in table(BROKER_PAGE, "## Asking a cluster", 1)
    }
    assert told == wanted


@pytest.mark.parametrize(
    ("heading", "shape", "extra"),
    [
        ("### Topics", PartitionState, set()),
        ("### Consumer groups", GroupPartition, {"topic", "partition"}),
    ],
)
def test_every_field_of_a_described_partition_is_told(
    heading: str, shape: type[Any], extra: set[str]
) -> None:
    told = {name for row in table(BROKER_PAGE, heading) for name in row["in JSON"].split(", ")}
    assert told | extra == {field.name for field in fields(shape)}


def test_every_topic_setting_is_told_with_its_default_and_range() -> None:
    wanted = {
        name: (str(LOG_CONFIG_DEFAULTS[setting.field]), setting.allowed)
        for name, setting in TOPIC_SETTINGS.items()
    }
    told = {
        row["setting"]: (row["default"], row["allowed"])
        for row in table(BROKER_PAGE, "## Topic settings")
    }
    assert told == wanted


def test_every_metric_of_the_broker_is_told_with_its_type_and_labels() -> None:
    wanted = {
        f"{PREFIX}{name}": (family.kind, ", ".join(family.labels))
        for name, family in FAMILIES.items()
    }
    told = {row["metric"]: (row["type"], row["labels"]) for row in table(BROKER_PAGE, "## Metrics")}
    assert told == wanted


def test_only_metrics_that_there_are_are_to_be_watched() -> None:
    signs = " ".join(row["sign"] for row in table(BROKER_PAGE, "## Metrics", 1))
    named = set(re.findall(r"[a-z]+_[a-z_]+", signs))
    assert "disk_free_bytes" in named
    assert named <= FAMILIES.keys()


def test_every_served_api_is_told_with_its_versions() -> None:
    wanted = {
        "".join(word.title() for word in api.name.split("_")): f"{lowest} to {highest}"
        for api, (lowest, highest) in SERVED.items()
    }
    told = {row["API"]: row["versions"] for row in table(BROKER_PAGE, "## What it speaks")}
    assert told == wanted


def setting_default(name: str) -> str:
    field = Settings.model_fields[name]
    return "" if field.default_factory is not None else shown(field.default)


def bounds(name: str) -> str:
    metadata = Settings.model_fields[name].metadata
    lowest = [shown(bound.ge) for bound in metadata if isinstance(bound, Ge)]
    highest = [shown(bound.le) for bound in metadata if isinstance(bound, Le)]
    return " to ".join(lowest + highest)


def test_every_setting_of_the_service_is_told_with_its_default_and_range() -> None:
    told = {
        row["variable"]: (row["default"], row["allowed"])
        for row in table(SERVICE_PAGE, "## Settings")
    }
    assert told.keys() == {_variable(name) for name in Settings.model_fields}
    for name in Settings.model_fields:
        default, allowed = told[_variable(name)]
        # A default that is worked out is told in words.
        assert default == (setting_default(name) or default)
        assert allowed == (bounds(name) or allowed)


@pytest.mark.parametrize("command", ["up", "api", "worker", "migrate", "publish", "replay"])
def test_every_setting_that_is_an_option_too_is_told_so(command: str) -> None:
    names = {param.name for param in rewind.commands[command].params if param.name is not None}
    wanted = {f"REWIND_{name.upper()}" for name in names & Settings.model_fields.keys()}
    told = {
        row["variable"]
        for row in table(SERVICE_PAGE, "## Settings")
        if command in row["option of"].split(", ")
    }
    assert told == wanted


def function_shown(name: str) -> Any:
    """The function of this name as the page shows it."""
    namespace: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", SERVICE_PAGE, re.DOTALL):
        exec(code, namespace)
    return namespace[name]


def test_the_answer_to_challenges_shown_to_receivers_is_taken() -> None:
    secret = new_secret()
    answer = function_shown("crc_answer")(secret, "token").encode()
    assert crc_problem([secret], "token", answer) is None
    assert crc_problem([new_secret()], "token", answer) is not None


def test_the_verification_shown_to_receivers_takes_what_is_signed_and_nothing_else() -> None:
    is_genuine = function_shown("is_genuine")
    secret, body = new_secret(), b'{"id":"evt_1"}'
    headers = webhook_headers([secret], "evt_1", int(time.time()), body)
    assert is_genuine(secret, headers, body)
    assert not is_genuine(secret, headers, body + b" ")
    assert not is_genuine(new_secret(), headers, body)
    late = webhook_headers([secret], "evt_1", int(time.time()) - 301, body)
    assert not is_genuine(secret, late, body)
