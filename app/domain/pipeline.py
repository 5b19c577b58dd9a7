"""Results of jobs of the data pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

SummaryValue = str | int | bool | None

RUNS_KEPT: Final = 50
"""Stored runs per job and subject: seven weeks of nightly runs."""

JOB: Final = r"^[a-z][a-z0-9-]{0,31}$"
SUBJECT: Final = r"^[^\x00-\x20\x7f]+( +[^\x00-\x20\x7f]+)*$"
"""Without control characters, and without outer spaces, which MySQL ignores."""

SUBJECT_CHARS_MAX: Final = 255
COUNT_NAME: Final = r"^[A-Za-z][A-Za-z0-9]{0,39}$"
SUMMARY_MAX: Final = 30
TEXT_CHARS_MAX: Final = 500
TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}$"
TOPICS_MAX: Final = 50
TOPIC_COUNTS_MAX: Final = 10


class RunOutcome(StrEnum):
    """How a run of a job ended."""

    DONE = "done"
    """It finished; missing records, if any, are in its summary."""

    FAILED = "failed"
    """A dependency was unavailable, or an error occurred; a retry may succeed."""

    REFUSED = "refused"
    """It stopped; an operator must decide or repair something first."""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A finished run. Times are by the job's clock, in ms since 1970, UTC."""

    job: str
    subject: str
    """What the job processed, such as the URI of a table."""

    outcome: RunOutcome
    started_ms: int
    finished_ms: int
    summary: Mapping[str, SummaryValue] = field(default_factory=dict)
    """Counts, and `error` after an error. `missing` is the number of missing records, in every job
    that checks for them."""

    topics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts by topic; `end` is the sum of the offsets, over all partitions, that a load has
    reached."""

    @property
    def found_loss(self) -> bool:
        """Whether records are missing."""
        return bool(self.summary.get("missing"))
