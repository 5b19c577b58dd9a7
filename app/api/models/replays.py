"""Bodies of the routes of replays."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment, RequestBody, Time, example
from app.replay.model import Counts, Failure, Replay, Window
from app.replay.progress import progress
from app.replay.states import ReplayState


class ReplayRequest(RequestBody):
    """A replay to start: every event owed to the webhook with `from` <= time < `to`."""

    model_config = example(
        {
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00Z",
            "to": "2026-11-21T08:00:00Z",
        }
    )

    webhook_id: str
    from_ms: Time = Field(alias="from")
    to_ms: Time = Field(alias="to")

    @property
    def window(self) -> Window:
        """The window asked for."""
        return Window(self.from_ms, self.to_ms)


class CountsDocument(Document):
    """What became of the events below the checkpoint."""

    delivered: int
    duplicates: int
    failed: int

    @classmethod
    def of(cls, counts: Counts) -> Self:
        """The document of counts."""
        return cls(delivered=counts.delivered, duplicates=counts.duplicates, failed=counts.failed)


class ReplayDocument(Document):
    """A replay and how far it is."""

    model_config = example(
        {
            "id": "rpl_7sKx2mQw9fLc",
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00.000Z",
            "to": "2026-11-21T08:00:00.000Z",
            "state": "ONGOING",
            "partition": 3,
            "startOffset": 120_400,
            "endOffset": 188_020,
            "checkpoint": 137_305,
            "counts": {"delivered": 4_070, "duplicates": 12, "failed": 1},
            "progress": 0.25,
            "eventsPerSecond": 2_041.5,
            "etaSeconds": 6.0,
            "estimatedFinishAt": "2026-11-21T08:10:08.000Z",
            "createdAt": "2026-11-21T08:10:00.000Z",
            "startedAt": "2026-11-21T08:10:00.150Z",
            "heartbeatAt": "2026-11-21T08:10:02.000Z",
            "finishedAt": None,
            "worker": "replayer-1:4711",
            "leaseEpoch": 1,
            "error": None,
        }
    )

    id: str
    webhook_id: str
    from_: Moment = Field(serialization_alias="from")
    to: Moment
    state: ReplayState
    partition: int | None = Field(description="The one partition that is read; null until then.")
    start_offset: int | None
    end_offset: int | None = Field(description="The first offset that is not read.")
    checkpoint: int | None = Field(
        description="Below this offset everything is delivered, a duplicate or listed as failed."
    )
    counts: CountsDocument
    progress: float = Field(ge=0, le=1, description="The share of the offsets that is done.")
    events_per_second: float | None = Field(description="The mean since the start.")
    eta_seconds: float | None
    estimated_finish_at: Moment | None
    created_at: Moment
    started_at: Moment | None
    heartbeat_at: Moment | None
    finished_at: Moment | None
    worker: str | None
    lease_epoch: int = Field(description="How often a worker has claimed the replay.")
    error: str | None

    @classmethod
    def of(cls, replay: Replay, now_ms: int) -> Self:
        """The document of a replay as of `now_ms`."""
        pace = progress(replay, now_ms)
        offsets = replay.offsets
        return cls(
            id=replay.id,
            webhook_id=replay.webhook_id,
            from_=replay.window.from_ms,
            to=replay.window.to_ms,
            state=replay.state,
            partition=None if offsets is None else offsets.partition,
            start_offset=None if offsets is None else offsets.start,
            end_offset=None if offsets is None else offsets.end,
            checkpoint=replay.checkpoint,
            counts=CountsDocument.of(replay.counts),
            progress=pace.share,
            events_per_second=pace.rate_events_s,
            eta_seconds=pace.eta_s,
            estimated_finish_at=None if pace.eta_s is None else now_ms + round(pace.eta_s * 1000),
            created_at=replay.created_ms,
            started_at=replay.started_ms,
            heartbeat_at=replay.heartbeat_ms,
            finished_at=replay.finished_ms,
            worker=replay.worker,
            lease_epoch=replay.lease_epoch,
            error=replay.error,
        )


class FailureDocument(Document):
    """An event that was given up."""

    model_config = example(
        {
            "offset": 121_377,
            "eventId": "evt_31f6",
            "attempts": 6,
            "status": 503,
            "reason": "the receiver answered 503",
        }
    )

    offset: int
    event_id: str
    attempts: int
    status: int | None = Field(description="The last HTTP answer; null when there was none.")
    reason: str

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """The document of a failure."""
        return cls(
            offset=failure.offset,
            event_id=failure.event_id,
            attempts=failure.attempts,
            status=failure.status,
            reason=failure.reason,
        )
