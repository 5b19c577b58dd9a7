"""Bodies of the routes that tell what happened to a replay."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment, example
from app.api.models.replays import CountsDocument
from app.domain.model import Failure
from app.domain.moves import Move, MoveEvent
from app.domain.samples import Sample
from app.domain.states import ReplayState


class FailureDocument(Document):
    """An event that was given up."""

    model_config = example(
        {
            "offset": 121_377,
            "eventId": "evt_31f6",
            "attempts": 6,
            "status": 503,
            "reason": "HTTP 503 Service Unavailable",
            "durationMs": 32,
            "response": "upstream is down",
        }
    )

    offset: int
    event_id: str
    attempts: int
    status: int | None = Field(description="The last HTTP answer; null when there was none.")
    reason: str
    duration_ms: int | None = Field(
        description="How long the last attempt took; null without one, or where it was not noted."
    )
    response: str | None = Field(
        description="How the body of the last answer began: its first 1,024 bytes, as text. null "
        "without an answer, or where it was not noted."
    )

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """The document of a failure."""
        return cls(
            offset=failure.offset,
            event_id=failure.event_id,
            attempts=failure.attempts,
            status=failure.status,
            reason=failure.reason,
            duration_ms=failure.duration_ms,
            response=failure.response,
        )


class MoveDocument(Document):
    """One thing that happened to a replay."""

    model_config = example(
        {
            "event": "take over",
            "state": "ONGOING",
            "leaseEpoch": 2,
            "actor": "replayer-2:4711:0a1b2c",
            "reason": "no heartbeat from replayer-1:4711:3d4e5f",
            "at": "2026-11-21T08:10:17.000Z",
        }
    )

    event: MoveEvent
    state: ReplayState = Field(description="Where it led to.")
    lease_epoch: int = Field(description="How often a worker had claimed the replay by then.")
    actor: str | None = Field(description="The worker, or the id of the key that asked for it.")
    reason: str | None = Field(
        description="What a replay that was given back waits for, why it failed, or whose silence "
        "led to a take-over; in words."
    )
    at: Moment

    @classmethod
    def of(cls, move: Move) -> Self:
        """The document of a move."""
        return cls(
            event=move.event,
            state=move.state,
            lease_epoch=move.lease_epoch,
            actor=move.actor,
            reason=move.reason,
            at=move.at_ms,
        )


class MovesDocument(Document):
    """What happened to a replay, the oldest first."""

    items: list[MoveDocument] = Field(
        description="The creation, and the latest: of a replay that moved some hundred times, not "
        "all."
    )


class SampleDocument(Document):
    """How far a replay was at a moment."""

    model_config = example(
        {
            "at": "2026-11-21T08:10:02.000Z",
            "checkpoint": 137_305,
            "counts": {"delivered": 4_070, "duplicates": 12, "failed": 1},
        }
    )

    at: Moment
    checkpoint: int
    counts: CountsDocument

    @classmethod
    def of(cls, sample: Sample) -> Self:
        """The document of a sample."""
        return cls(
            at=sample.at_ms,
            checkpoint=sample.checkpoint,
            counts=CountsDocument.of(sample.counts),
        )


class SamplesDocument(Document):
    """How far a replay was over time, the oldest first."""

    items: list[SampleDocument] = Field(
        description="From when its delivery began to its end: one a second in the first minute, "
        "and later one for each sixtieth of the time since the start."
    )
