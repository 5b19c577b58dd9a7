"""The tables of the mirror's page say what the code says, row by row."""

import re

import click

from logbroker.cli.mirror import mirror
from logbroker.client.audit_reporter import RETRY_S
from logbroker.mirror import copy_loop, received_reports, source_consumer
from logbroker.mirror.clients import DECIDED
from logbroker.mirror.domain.partitions import RETRY_MAX_S as PAUSE_MAX_S
from logbroker.mirror.domain.partitions import RETRY_S as PAUSE_S
from logbroker.mirror.domain.provenance import SkipReason
from logbroker.mirror.metrics import METRICS, PREFIX
from logbroker.mirror.settings import COMPRESSIONS
from logbroker.mirror.topics import NOT_COPIED
from tests.unit.docs.doc_pages import page, shown, table

MIRROR_PAGE = page("mirror.md")


def option_default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.is_flag:
        return "off"
    default = option.to_info_dict()["default"]  # the bare one may be a sentinel of click's
    return "none" if default is None else shown(default)


def test_every_option_is_documented() -> None:
    wanted = {
        option.opts[0]: (option.envvar or "none", option_default(option))
        for option in mirror.params
        if isinstance(option, click.Option)
    }
    rows = table(MIRROR_PAGE, "## Options of `logbroker mirror`")
    assert {row["option"]: (row["variable"], row["default"]) for row in rows} == wanted
    (compression,) = (row["meaning"] for row in rows if row["option"] == "--compression")
    assert compression.endswith(f": {', '.join(COMPRESSIONS)}")


def test_every_metric_is_documented() -> None:
    wanted = {
        f"{PREFIX}{name}": (family.kind, ", ".join(family.labels))
        for name, family in METRICS.items()
    }
    documented = {
        row["metric"]: (row["type"], row["labels"]) for row in table(MIRROR_PAGE, "## Metrics")
    }
    assert documented == wanted


def test_the_table_of_signs_names_existing_metrics() -> None:
    signs = " ".join(row["sign"] for row in table(MIRROR_PAGE, "## Metrics", 1))
    named = set(re.findall(r"[a-z]+_[a-z_]+", signs))
    assert "lag_records" in named
    assert named <= METRICS.keys()


def test_every_skip_reason_is_documented() -> None:
    (row,) = (row for row in table(MIRROR_PAGE, "## Metrics") if "skipped_total" in row["metric"])
    assert set(re.findall(r"(\w+) \(", row["meaning"])) == set(SkipReason)


def test_decided_properties_and_uncopied_settings_are_documented() -> None:
    decided = MIRROR_PAGE.partition("is decided by the mirror")[2].partition("and their kin")[0]
    assert (names := set(re.findall(r"`([a-z.]+)`", decided))) <= DECIDED
    assert len(names) == 6
    text = MIRROR_PAGE.partition("named in the log.")[2].partition("are not copied")[0]
    documented = re.findall(r"`([a-z.]+)\*?`", text)
    for setting in NOT_COPIED:
        assert any(setting.startswith(name) for name in documented) or "throttled" in setting


def test_the_times_of_faults_are_those_of_the_code() -> None:
    documented = {row["what happens"]: row["what the mirror does"] for row in faults()}
    refused = next(
        text for what, text in documented.items() if what.startswith("the destination ref")
    )
    assert f"for {PAUSE_S:g} s and then longer, up to {PAUSE_MAX_S:g} s" in refused
    audit = next(text for what, text in documented.items() if "audit" in what)
    assert f"({received_reports.REFUSED})" in audit
    assert f"every {RETRY_S:g} s" in audit
    assert f"up to {received_reports.BYTES_MAX >> 20} MB" in audit
    assert f"({received_reports.DROPPED})" in audit
    assert f"({source_consumer.RECORDS_LOST})" in " ".join(documented.values())
    assert f"what is on its way is waited for ({copy_loop.DRAIN_S:g} s)" in MIRROR_PAGE


def faults() -> list[dict[str, str]]:
    return table(MIRROR_PAGE, "## When something fails")
