"""What jobs of the data pipeline tell of themselves at their end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

Scalar = str | int | bool | None

RUNS_KEPT: Final = 50
"""Of each job and subject: seven weeks of nights."""

JOB: Final = r"^[a-z][a-z0-9-]{0,31}$"
SUBJECT: Final = r"^[^\x00-\x20\x7f]+( +[^\x00-\x20\x7f]+)*$"
"""No control characters, and no spaces around it, which MySQL would not tell apart."""

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
    """It did what it was asked for; what it found missing is in its summary."""

    FAILED = "failed"
    """Something did not answer or broke; the same run may do better later."""

    REFUSED = "refused"
    """It would not go on: somebody has to decide or mend something first."""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A run that is over. Times are the job's own, in ms since 1970, UTC."""

    job: str
    subject: str
    """What it worked on, such as the URI of a table."""

    outcome: RunOutcome
    started_ms: int
    finished_ms: int
    summary: Mapping[str, Scalar] = field(default_factory=dict)
    """What it counted, and `error` where it has one. `missing` is what should be there and is not,
    by every job that looks for that."""

    topics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What it counted of each topic; `end` adds up the offsets, over its partitions, that a load
    has come to."""

    @property
    def found_loss(self) -> bool:
        """Whether it tells that something is missing."""
        return bool(self.summary.get("missing"))
