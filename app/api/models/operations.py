"""Bodies of the routes for operators: processes and pipeline runs."""

from typing import Annotated, Final

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from app.api.models.documents import Document, Moment
from app.domain.pipeline import (
    COUNT_NAME,
    JOB,
    SUBJECT,
    SUBJECT_CHARS_MAX,
    SUMMARY_MAX,
    TEXT_CHARS_MAX,
    TOPIC,
    TOPIC_COUNTS_MAX,
    TOPICS_MAX,
    PipelineRun,
    RunOutcome,
    SummaryValue,
)
from app.domain.processes import ProcessKind
from app.http.request_bodies import RequestBody, Time, example

JobName = Annotated[str, Field(pattern=JOB)]
Subject = Annotated[str, Field(pattern=SUBJECT, max_length=SUBJECT_CHARS_MAX)]

_Name = Annotated[str, Field(pattern=COUNT_NAME)]
_Topic = Annotated[str, Field(pattern=TOPIC)]
_Count = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
_Text = Annotated[StrictStr, Field(max_length=TEXT_CHARS_MAX)]
_Number = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1)]


def _scalar(value: object) -> object:
    # Pydantic reports an error for each member of a union; one is clearer.
    if isinstance(value, bool) or value is None:
        return value
    is_short = isinstance(value, str) and len(value) <= TEXT_CHARS_MAX
    is_number = isinstance(value, int) and -(2**63) <= value < 2**63
    if not (is_short or is_number):
        raise ValueError(
            f"a text of up to {TEXT_CHARS_MAX} characters, a whole number of 64 bits, true, false "
            "or null"
        )
    return value


_Scalar = Annotated[_Text | _Number | StrictBool | None, BeforeValidator(_scalar)]

_EXAMPLE: Final[dict[str, JsonValue]] = {
    "job": "load",
    "subject": "/tables/records",
    "outcome": "done",
    "summary": {"version": 12, "records": 188_020, "missing": 0},
    "topics": {"events": {"records": 188_020, "end": 4_711_300}},
    "startedAt": "2026-11-22T01:15:00.000Z",
    "finishedAt": "2026-11-22T01:15:41.000Z",
}


class PipelineRunRequest(RequestBody):
    """A finished run of a job."""

    model_config = example(_EXAMPLE)

    job: JobName = Field(description="The job's name.")
    subject: Subject = Field(description="What the run worked on, such as the URI of a table.")
    outcome: RunOutcome
    summary: dict[_Name, _Scalar] = Field(
        {}, max_length=SUMMARY_MAX, description="Counts of the run; `missing` if it found losses."
    )
    topics: dict[_Topic, Annotated[dict[_Name, _Count], Field(max_length=TOPIC_COUNTS_MAX)]] = (
        Field({}, max_length=TOPICS_MAX, description="Counts for each topic.")
    )
    started_at: Time
    finished_at: Time

    @field_validator("finished_at")
    @classmethod
    def _refuse_an_end_before_the_start(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("started_at", value):
            raise ValueError("a time that is not before startedAt")
        return value

    def run(self) -> PipelineRun:
        """The reported run."""
        return PipelineRun(
            self.job,
            self.subject,
            self.outcome,
            self.started_at,
            self.finished_at,
            self.summary,
            self.topics,
        )


class PipelineRunDocument(Document):
    """The result of a run of a job."""

    model_config = example(_EXAMPLE)

    job: str
    subject: str
    outcome: RunOutcome
    summary: dict[str, SummaryValue]
    topics: dict[str, dict[str, int]]
    started_at: Moment = Field(
        validation_alias="started_ms", description="By the clock of the job, like `finishedAt`."
    )
    finished_at: Moment = Field(validation_alias="finished_ms")


class ProcessDocument(Document):
    """A process with heartbeats that was not stopped."""

    model_config = example(
        {
            "kind": "worker",
            "name": "east-1:4711:5d0c9a31",
            "origin": "local",
            "details": {"jobs": 3, "jobsMax": 4},
            "startedAt": "2026-11-21T08:00:00.000Z",
            "heartbeatAt": "2026-11-21T09:30:02.250Z",
            "heartbeatAgeMs": 1_750,
            "isSilent": False,
        }
    )

    kind: ProcessKind
    name: str = Field(
        description="HOST:PID; for a worker HOST:PID:ID, and `worker-ID` in its replays."
    )
    origin: str = Field(description="The data centre that it runs in.")
    details: dict[str, int] = Field(description="Figures that depend on the kind.")
    started_at: Moment = Field(validation_alias="started_ms")
    heartbeat_at: Moment = Field(validation_alias="heartbeat_ms", description="The last heartbeat.")
    heartbeat_age_ms: int = Field(validation_alias="silent_ms")
    is_silent: bool = Field(
        description="No recent heartbeat: the process died, hangs, or cannot reach the database."
    )


class ProcessesDocument(Document):
    """The processes with a heartbeat within a day."""

    items: list[ProcessDocument]
