"""The tables of the audit's page say what the code says, row by row."""

import json
import re
from collections.abc import Iterable
from typing import Any

import click

from logbroker.audit.domain.comparison import Comparison, ReportDeadline, Scope, Status
from logbroker.audit.domain.result import EVENTS, result_json
from logbroker.cli.audit import _ROW_HEADINGS, INTERRUPTED, MISSING, NOT_COMPARED, audit
from logbroker.client.audit_format.report import (
    AuditRecord,
    PublishedReport,
    ReceivedCount,
    ReceivedReport,
    encode_published,
    encode_received,
)
from logbroker.client.audit_format.sequence_set import SequenceSet
from tests.unit.docs.doc_pages import page, shown, table

PAGE = page("audit.md")
T0 = 1_763_712_000_000
SEQUENCES = SequenceSet(range(3))
PUBLISHED = PublishedReport("clicks", "web/1", T0, T0 + 60_000, SEQUENCES)
RECEIVED = ReceivedReport(
    "readers", "one", T0, [ReceivedCount("clicks", "web/1", T0, 3, SEQUENCES)]
)


def members(heading: str, number: int = 0) -> list[str]:
    column = "member" if number == 0 else "member of received"
    return [row[column] for row in table(PAGE, heading, number)]


def event(records: Iterable[AuditRecord]) -> dict[str, Any]:
    (record,) = records
    return dict(json.loads(record.value))


def example() -> dict[str, Any]:
    scope, deadline = Scope(0, T0 + 1), ReportDeadline(T0 + 1, 0)
    comparison = Comparison(scope)
    comparison.add_published(PUBLISHED, T0)
    comparison.add_received(RECEIVED, T0)
    return result_json(scope, deadline, list(comparison.rows(deadline)), {}, [])


def test_every_member_of_an_audit_report_is_documented() -> None:
    published, received = event(encode_published(PUBLISHED)), event(encode_received(RECEIVED))
    assert members("### What was published") == list(published)
    assert members("### What was received") == list(received)
    assert members("### What was received", 1) == list(received["received"][0])


def test_every_option_is_documented_with_its_default() -> None:
    wanted = {}
    for option in audit.params:
        assert isinstance(option, click.Option)
        default = option.to_info_dict()["default"]
        none = "off" if option.is_flag else "none"
        is_given = default not in (None, False, ())
        wanted[option.opts[0]] = shown(default) if is_given else none
    assert {row["option"]: row["default"] for row in table(PAGE, "## Options")} == wanted


def test_every_column_and_member_of_a_row_is_documented() -> None:
    rows = table(PAGE, "## Reading the report")
    assert tuple(row["column"] for row in rows if row["column"]) == _ROW_HEADINGS
    assert [row["in JSON"] for row in rows] == list(example()["rows"][0])


def test_every_status_is_documented_the_worst_first() -> None:
    documented = table(PAGE, "## Reading the report", 1)
    assert [row["status"] for row in documented] == list(Status)
    assert [row["status"] for row in documented if row["is a loss"] == "yes"] == [Status.MISSING]


def test_every_member_of_the_report_is_documented() -> None:
    documented = {row["member"]: row["is"] for row in table(PAGE, "## Reading the report", 2)}
    assert list(documented) == list(example())
    named = re.findall(
        r"[a-z]+", documented["events"].partition(":")[2].replace("(written twice)", "")
    )
    assert set(EVENTS) <= set(named)


def test_every_exit_code_is_documented() -> None:
    codes = [int(row["code"]) for row in table(PAGE, "## Exit codes")]
    assert codes == [0, MISSING, NOT_COMPARED, INTERRUPTED]


def test_the_report_that_is_shown_has_the_columns_that_are_printed() -> None:
    example_lines = PAGE.partition("```\nTOPIC")[2].partition("```")[0].splitlines()
    assert ("TOPIC" + example_lines[0]).split() == list(_ROW_HEADINGS)
    assert len(example_lines[1].split()) == len(_ROW_HEADINGS)
