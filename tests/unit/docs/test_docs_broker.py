"""The tables of the broker's page say what the code says, row by row."""

import re
from dataclasses import fields
from typing import Any

import click
import pytest

from logbroker.cli.group_report import GroupPartition
from logbroker.cli.groups import groups
from logbroker.cli.serve import serve
from logbroker.cli.topic_admin import PartitionState
from logbroker.cli.topics import topics
from logbroker.config import _BROKER_RANGES
from logbroker.server.metrics.families import FAMILIES, PREFIX
from logbroker.topic_settings import LOG_CONFIG_DEFAULTS, TOPIC_SETTINGS, setting_text
from logbroker.wire.apis import SERVED
from tests.unit.docs.doc_pages import page, shown, table

BROKER_PAGE = page("broker.md")

REQUIRED = "required"
NONE = "none"


def option_default(option: click.Option) -> str:
    if option.required:
        return REQUIRED
    if option.is_flag and not option.secondary_opts:
        return "off"
    default = option.to_info_dict()["default"]  # the bare one may be a sentinel of click's
    return NONE if default is None else shown(default)


def test_every_option_of_logbroker_serve_is_documented_with_its_default() -> None:
    options = [each for each in serve.params if isinstance(each, click.Option)]
    wanted = {
        " / ".join(option.opts + option.secondary_opts): (
            option.envvar or NONE,
            option_default(option),
        )
        for option in options
    }
    documented = {
        row["option"]: (row["variable"], row["default"])
        for row in table(BROKER_PAGE, "## Options of `logbroker serve`")
    }
    assert documented == wanted


def test_every_number_of_the_broker_is_documented_with_its_range() -> None:
    options = {param.opts[0]: param.name for param in serve.params}
    wanted = {name: f"{lowest} to {highest}" for name, lowest, highest in _BROKER_RANGES}
    documented = {
        options[row["option"]]: row["allowed"]
        for row in table(BROKER_PAGE, "## Options of `logbroker serve`")
        if options.get(row["option"]) in wanted
    }
    assert documented == {name: wanted[name] for name in documented}
    assert len(documented) == len(wanted.keys() & options.values())


def asking_commands() -> dict[str, click.Command]:
    """`topics list` and all others that ask a cluster, by the words one types."""
    return {
        f"{group.name} {name}": command
        for group in (topics, groups)
        for name, command in group.commands.items()
    }


def test_every_cluster_command_is_documented() -> None:
    documented = table(BROKER_PAGE, "## Asking a cluster")
    assert {" ".join(row["command"].split()[:2]) for row in documented} == asking_commands().keys()


def test_every_option_of_a_cluster_command_is_documented() -> None:
    wanted: dict[str, set[str]] = {}
    for name, command in asking_commands().items():
        for param in command.params:
            if isinstance(param, click.Option):
                wanted.setdefault(param.opts[0], set()).add(name)
    documented = {
        row["option"]: set(asking_commands() if row["of"] == "all" else row["of"].split(", "))
        for row in table(BROKER_PAGE, "## Asking a cluster", 1)
    }
    assert documented == wanted


@pytest.mark.parametrize(
    ("heading", "shape", "extra"),
    [
        ("### Topics", PartitionState, set()),
        ("### Consumer groups", GroupPartition, {"topic", "partition"}),
    ],
)
def test_every_field_of_a_described_partition_is_documented(
    heading: str, shape: type[Any], extra: set[str]
) -> None:
    documented = {
        name for row in table(BROKER_PAGE, heading) for name in row["in JSON"].split(", ")
    }
    assert documented | extra == {field.name for field in fields(shape)}


def test_every_topic_setting_is_documented_with_its_default_and_range() -> None:
    wanted = {
        name: (setting_text(LOG_CONFIG_DEFAULTS[setting.field]), setting.allowed)
        for name, setting in TOPIC_SETTINGS.items()
    }
    documented = {
        row["setting"]: (row["default"], row["allowed"])
        for row in table(BROKER_PAGE, "## Topic settings")
    }
    assert documented == wanted


def test_every_metric_of_the_broker_is_documented_with_its_type_and_labels() -> None:
    wanted = {
        f"{PREFIX}{name}": (family.kind, ", ".join(family.labels))
        for name, family in FAMILIES.items()
    }
    documented = {
        row["metric"]: (row["type"], row["labels"]) for row in table(BROKER_PAGE, "## Metrics")
    }
    assert documented == wanted


def test_only_metrics_that_there_are_are_to_be_watched() -> None:
    signs = " ".join(row["sign"] for row in table(BROKER_PAGE, "## Metrics", 1))
    named = set(re.findall(r"[a-z]+_[a-z_]+", signs))
    assert "disk_free_bytes" in named
    assert named <= FAMILIES.keys()


def test_every_served_api_is_documented_with_its_versions() -> None:
    wanted = {
        "".join(word.title() for word in api.name.split("_")): f"{lowest} to {highest}"
        for api, (lowest, highest) in SERVED.items()
    }
    documented = {row["API"]: row["versions"] for row in table(BROKER_PAGE, "## What it speaks")}
    assert documented == wanted
