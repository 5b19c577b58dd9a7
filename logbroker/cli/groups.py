"""`logbroker groups`: list, describe, reset and delete consumer groups of a running cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from logbroker.cli.admin_command import (
    CommandRefused,
    cluster_options,
    echo_json,
    json_option,
    one_line_errors,
)
from logbroker.cli.formats import parse_time, table_lines
from logbroker.cli.group_admin import GroupAdmin
from logbroker.cli.group_report import GroupReport, describe_group
from logbroker.cli.group_text import plan_lines, report_lines
from logbroker.cli.offset_reset import (
    PlannedOffset,
    SelectedPartitions,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    plan_reset,
)
from logbroker.cli.server_command import zookeeper_config_option
from logbroker.groups.stored import PaperGroup

_zookeeper_option = click.option(
    "--zookeeper",
    metavar="HOST:PORT,...[/CHROOT]",
    envvar="LOGBROKER_ZOOKEEPER",
    show_envvar=True,
    help="ZooKeeper of the paper's consumers, to show them as well.",
)


class Rfc3339(click.ParamType[int]):
    """A time with its offset from UTC, in milliseconds since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds since 1970."""
        try:
            return parse_time(str(value))
        except ValueError:
            self.fail(
                f"invalid time {value!r}; expected RFC 3339, such as 2026-11-21T08:00:00Z",
                param,
                ctx,
            )


class Topics(click.ParamType[SelectedPartitions]):
    """TOPIC, or TOPIC:PARTITION,PARTITION."""

    name = "TOPIC[:N,N]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> SelectedPartitions:
        """Return the topic and the partition numbers."""
        topic, colon, numbers = str(value).partition(":")
        partitions = numbers.split(",") if colon else []
        if not topic or not all(each.isascii() and each.isdecimal() for each in partitions):
            self.fail(f"invalid partitions {value!r}; expected TOPIC or TOPIC:0,1", param, ctx)
        return SelectedPartitions(topic, tuple(map(int, partitions)))


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups of a running cluster."""


@groups.command("list")
@_zookeeper_option
@zookeeper_config_option
@json_option
@cluster_options
def list_(
    zookeeper: str | None,
    zookeeper_config: Path | None,
    as_json: bool,
    bootstrap_servers: str,
) -> None:
    """Print the name and the state of every group.

    With --zookeeper, CONSUMERS is the number of registered consumers of the paper.
    """
    with one_line_errors(bootstrap_servers):
        states, problems = GroupAdmin(bootstrap_servers).listing()
        _echo_listing(states, _paper_groups(zookeeper, zookeeper_config), as_json)
        _refuse_if(problems)


@groups.command()
@click.argument("names", metavar="[GROUP]...", nargs=-1)
@_zookeeper_option
@zookeeper_config_option
@json_option
@cluster_options
def describe(
    names: tuple[str, ...],
    zookeeper: str | None,
    zookeeper_config: Path | None,
    as_json: bool,
    bootstrap_servers: str,
) -> None:
    """Print offsets, lag and members of groups; of all groups if none is named.

    LAG is the log end offset minus the committed offset. Unknown values are `-`, and null in JSON,
    such as the end of a log without a leader.
    """
    with one_line_errors(bootstrap_servers):
        admin = GroupAdmin(bootstrap_servers)
        paper = _paper_groups(zookeeper, zookeeper_config)
        states, problems = ({}, []) if names else admin.listing()
        wanted = dict.fromkeys(names or sorted(states.keys() | (paper or {}).keys()))
        reports = _reports(admin, wanted, paper)
        if as_json:
            echo_json([_as_json(report) for report in reports])
        else:
            _echo_lines(line for report in reports for line in report_lines(report))
        _refuse_if(problems)


@groups.command()
@click.argument("group")
@click.option("--to-earliest", is_flag=True, help="Reset to the log start offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the log end offset.")
@click.option("--to-time", type=Rfc3339(), help="Reset to the first message that is not older.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Reset to this offset.")
@click.option(
    "--topic",
    "choices",
    type=Topics(),
    multiple=True,
    help="A topic, or some partitions of it; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="Every partition with a committed offset.")
@click.option("--execute", is_flag=True, help="Execute the reset; otherwise only show the plan.")
@json_option
@cluster_options
def reset(
    group: str,
    choices: tuple[SelectedPartitions, ...],
    all_topics: bool,
    execute: bool,
    as_json: bool,
    bootstrap_servers: str,
    **targets: Any,
) -> None:
    """Set committed offsets of GROUP, which must have no members.

    Without --execute nothing changes: the new offsets are only shown. An offset outside of a log
    becomes the nearest end of that log, and so does a time after the last message.
    """
    target = _target(**targets)
    if bool(choices) == all_topics:
        raise click.UsageError("choose either --topic or --all-topics")
    with one_line_errors(bootstrap_servers):
        admin = GroupAdmin(bootstrap_servers)
        plan = plan_reset(admin, group, choices, target)
        if execute:
            admin.commit(group, {(each.topic, each.partition): each.new_offset for each in plan})
    _echo_plan(plan, target, as_json)
    click.echo("done" if execute else "nothing was changed; pass --execute to reset", err=True)


@groups.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@cluster_options
def delete(names: tuple[str, ...], bootstrap_servers: str) -> None:
    """Delete groups without members, and their committed offsets."""
    with one_line_errors(bootstrap_servers):
        admin = GroupAdmin(bootstrap_servers)
        for name in dict.fromkeys(names):
            admin.delete(name)
            click.echo(f"deleted group {name}", err=True)


def _target(
    to_earliest: bool, to_latest: bool, to_time: int | None, to_offset: int | None
) -> Target:
    given: list[Target] = []
    if to_earliest:
        given.append(ToEarliest())
    if to_latest:
        given.append(ToLatest())
    if to_time is not None:
        given.append(ToTime(to_time))
    if to_offset is not None:
        given.append(ToOffset(to_offset))
    if len(given) != 1:
        raise click.UsageError("choose one of --to-earliest, --to-latest, --to-time, --to-offset")
    return given[0]


def _paper_groups(zookeeper: str | None, config: Path | None) -> Mapping[str, PaperGroup] | None:
    if zookeeper is None:
        return None
    from logbroker.registry.zookeeper.client_settings import read_zookeeper_config
    from logbroker.registry.zookeeper.consumers import read_paper_groups

    return read_paper_groups(zookeeper, read_zookeeper_config(config))


def _reports(
    admin: GroupAdmin, names: Iterable[str], paper: Mapping[str, PaperGroup] | None
) -> list[GroupReport]:
    led = {tp for tp, leader in admin.leaders().items() if leader is not None}
    reports = []
    for name in names:
        known = None if paper is None else paper.get(name, PaperGroup([], {}, {}))
        report = describe_group(admin, name, led, known)
        if report is None:
            raise CommandRefused(f"unknown group {name!r}")
        reports.append(report)
    return reports


def _refuse_if(problems: Sequence[str]) -> None:
    if problems:
        reasons = "; ".join(problems)
        raise CommandRefused(f"groups may be missing, because a broker did not answer: {reasons}")


def _echo_listing(
    states: Mapping[str, str], paper: Mapping[str, PaperGroup] | None, as_json: bool
) -> None:
    rows = [
        (name, states.get(name), _consumers(paper, name))
        for name in sorted(states.keys() | (paper or {}).keys())
    ]
    if as_json:
        fields = ("group", "state", "consumers")
        echo_json([dict(zip(fields, row, strict=True)) for row in rows])
    elif paper is None:
        _echo_lines(table_lines(("GROUP", "STATE"), [row[:2] for row in rows]))
    else:
        _echo_lines(table_lines(("GROUP", "STATE", "CONSUMERS"), rows))


def _consumers(paper: Mapping[str, PaperGroup] | None, name: str) -> int | None:
    if paper is None:
        return None
    return len(paper[name].consumers) if name in paper else 0


def _as_json(report: GroupReport) -> dict[str, Any]:
    value = asdict(report)
    for member in value["members"]:
        member["partitions"] = [
            {"topic": topic, "partition": partition} for topic, partition in member["partitions"]
        ]
    return value


def _echo_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _echo_plan(plan: Sequence[PlannedOffset], target: Target, as_json: bool) -> None:
    if as_json:
        echo_json([asdict(each) for each in plan])
    else:
        _echo_lines(plan_lines(plan))
    for each in plan:
        if isinstance(target, ToOffset) and each.new_offset != target.offset:
            click.echo(
                f"partition {each.partition} of {each.topic} has no offset {target.offset}; "
                f"the nearest is {each.new_offset}",
                err=True,
            )
