"""Bodies of the route that lists processes."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment, example
from app.domain.processes import Process, ProcessKind


class ProcessDocument(Document):
    """A process that has said it lives, and not yet that it ends."""

    model_config = example(
        {
            "kind": "worker",
            "name": "east-1:4711:5d0c9a",
            "origin": "local",
            "details": {"jobs": 3, "jobsMax": 4},
            "startedAt": "2026-11-21T08:00:00.000Z",
            "heartbeatAt": "2026-11-21T09:30:02.250Z",
            "heartbeatAgeMs": 1_750,
            "isSilent": False,
        }
    )

    kind: ProcessKind
    name: str = Field(description="HOST:PID; of a worker, the name that its replays bear.")
    origin: str = Field(description="The data centre that it runs in.")
    details: dict[str, int] = Field(description="What there is to tell of its kind.")
    started_at: Moment
    heartbeat_at: Moment = Field(description="When it was heard of last.")
    heartbeat_age_ms: int
    is_silent: bool = Field(description="It died, hangs, or does not reach the database.")

    @classmethod
    def of(cls, process: Process) -> Self:
        """The document of a process."""
        return cls(
            kind=process.kind,
            name=process.name,
            origin=process.origin,
            details=dict(process.details),
            started_at=process.started_ms,
            heartbeat_at=process.heartbeat_ms,
            heartbeat_age_ms=process.silent_ms,
            is_silent=process.is_silent,
        )


class ProcessesDocument(Document):
    """The processes that were heard of within a day."""

    items: list[ProcessDocument]
