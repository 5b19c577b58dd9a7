"""Response bodies of the routes of replays."""

from typing import Literal, Self

from pydantic import Field

from app.api.models.documents import Document, Moment, former_name_of
from app.domain.model import Replay
from app.domain.moves import MoveEvent
from app.domain.options import NoticeStyle, Only, ReplayReason, Source
from app.domain.progress import progress
from app.domain.replay_results import ReplayResult, result_of
from app.domain.restores import describe_awaited
from app.domain.states import ReplayState
from app.http.request_bodies import example


class CountsDocument(Document):
    """Outcomes of the events below the checkpoint."""

    delivered: int
    duplicates: int
    failed: int


class UnreadableDocument(Document):
    """Batches of the log that a replay skipped because they cannot be read."""

    batches: int
    offsets: int = Field(
        description="The offsets of the batches in the range. How many events of the webhook they "
        "held is unknown; none of them was sent."
    )


class OptionsDocument(Document):
    """The options of a replay."""

    event_types: list[str]
    only: Only
    max_events_per_second: int
    max_in_flight: int | None
    batch_size: int
    target_url: str | None


class AwaitedRestoreDocument(Document):
    """The restore that an archive replay waits for."""

    kind: Literal["restore"] = "restore"
    job: Literal["rewind-jobs restore"] = Field(
        default="rewind-jobs restore", description="The job that restores the events."
    )
    partition: int = Field(description="The partition of `delivery_log` that had its events.")
    below: int = Field(description="The offset of `delivery_log` that all of them are below.")
    missing: str | None = Field(
        description="What the last run of the job did not find; null before its first run."
    )


class ReceiverFailureDocument(Document):
    """Failed attempts of a replay whose receiver does not accept its events."""

    failed_attempts: int = Field(description="Failed attempts since `since`.")
    since: Moment = Field(validation_alias="since_ms")
    last_attempt_at: Moment = Field(validation_alias="last_attempt_ms")
    last_status: int | None = Field(
        validation_alias="status",
        description="The HTTP status of the last attempt; null without a response.",
    )
    last_error: str = Field(validation_alias="reason")
    next_attempt_at: Moment = Field(
        validation_alias="next_attempt_ms", description="When the next attempt is due."
    )
    waiting_events: int = Field(
        description="Events that are read from the log, and neither delivered nor given up."
    )


class ReplayDocument(Document):
    """A replay and its progress."""

    model_config = example(
        {
            "id": "rpl_7sKx2mQw9fLc",
            "accountId": "acc_default",
            "origin": "local",
            "source": "log",
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00.000Z",
            "to": "2026-11-21T08:00:00.000Z",
            "options": {
                "eventTypes": ["follow.*"],
                "only": "all",
                "maxEventsPerSecond": 2_500,
                "maxInFlight": None,
                "batchSize": 1,
                "targetUrl": None,
            },
            "retryOf": None,
            "reason": "request",
            "availableFrom": None,
            "notice": "rewind",
            "state": "ONGOING",
            "result": None,
            "waitingFor": None,
            "waitsFor": None,
            "partition": 3,
            "startOffset": 120_400,
            "endOffset": 188_020,
            "checkpoint": 137_305,
            "counts": {"delivered": 4_070, "duplicates": 12, "failed": 1},
            "statusCounts": {"200": 4_070, "503": 1},
            "unreadable": {"batches": 0, "offsets": 0},
            "receiverFailure": None,
            "progress": 0.25,
            "eventsPerSecond": 2_041.5,
            "etaSeconds": 6.0,
            "estimatedFinishAt": "2026-11-21T08:10:08.000Z",
            "createdAt": "2026-11-21T08:10:00.000Z",
            "startedAt": "2026-11-21T08:10:00.150Z",
            "heartbeatAt": "2026-11-21T08:10:02.000Z",
            "finishedAt": None,
            "worker": "worker-5d0c9a31",
            "leaseEpoch": 1,
            "claimsWithoutProgress": 0,
            "claimsInVain": 0,
            "error": None,
        }
    )

    id: str
    account_id: str
    origin: str | None = Field(
        description="The data centre whose workers read its log; null, for replays of old "
        "versions: the first that claims it."
    )
    source: Source = Field(
        description="The topic of the offsets: `log` is `delivery_log`, `archive` is "
        "`delivery_archive`."
    )
    webhook_id: str
    from_: Moment = Field(serialization_alias="from")
    to: Moment
    options: OptionsDocument
    retry_of: str | None = Field(description="The replay whose failures this one sends.")
    reason: ReplayReason = Field(
        description="`recovery`: created because the receiver accepts events again after an outage."
    )
    available_from: Moment | None = Field(
        description="For a recovery whose window the log retained only in part: the time from "
        "which it did. Earlier events are not sent."
    )
    notice: NoticeStyle = Field(
        description="The form of the notice that the webhook gets at the end."
    )
    state: ReplayState
    result: ReplayResult | None = Field(
        description="How the replay ended: with `completed-with-failures` some events are listed "
        "as failed. null while it is not over."
    )
    waiting_for: str | None = Field(
        description="What an OPEN replay waits for, if not for a worker; in words."
    )
    waits_for: AwaitedRestoreDocument | None = Field(
        description="The restore that must be done first."
    )
    partition: int | None = Field(
        description="The partition that is read; null before the first claim."
    )
    start_offset: int | None
    end_offset: int | None = Field(description="The first offset after the range.")
    checkpoint: int | None = Field(
        description="Below this offset everything is delivered, a duplicate or listed as failed."
    )
    counts: CountsDocument
    status_counts: dict[str, int] | None = Field(
        description="The delivered and failed events by the HTTP status of their last attempt; "
        "`none`: no response. null for replays of old versions."
    )
    unreadable: UnreadableDocument = Field(
        description="What was skipped below the checkpoint because it cannot be read from the log."
    )
    receiver_failure: ReceiverFailureDocument | None = Field(
        description="The failed attempts while the receiver fails; null if it accepts events, and "
        "unless the replay is ONGOING."
    )
    progress: float = Field(
        ge=0, le=1, description="The share of the offsets below the checkpoint."
    )
    events_per_second: float | None = Field(description="The mean while a worker had the replay.")
    eta_seconds: float | None
    estimated_finish_at: Moment | None
    created_at: Moment
    started_at: Moment | None
    heartbeat_at: Moment | None
    finished_at: Moment | None
    worker: str | None
    lease_epoch: int = Field(description="The number of claims by workers.")
    claims_without_progress: int = Field(description="Consecutive claims without progress.")
    claims_in_vain: int = former_name_of("claimsWithoutProgress")
    error: str | None

    @classmethod
    def of(cls, replay: Replay, now_ms: int) -> Self:
        """The document of a replay as of `now_ms`."""
        pace = progress(replay, now_ms)
        offsets = replay.offsets
        return cls(
            id=replay.id,
            account_id=replay.account_id,
            origin=replay.origin or None,
            source=replay.source,
            webhook_id=replay.webhook_id,
            from_=replay.window.from_ms,
            to=replay.window.to_ms,
            options=OptionsDocument.model_validate(replay.options),
            retry_of=replay.retry_of,
            reason=replay.reason,
            available_from=replay.available_from_ms,
            notice=replay.notice,
            state=replay.state,
            result=result_of(replay),
            waiting_for=_waiting_for(replay),
            waits_for=None
            if replay.awaits is None
            else AwaitedRestoreDocument.model_validate(replay.awaits),
            partition=None if offsets is None else offsets.partition,
            start_offset=None if offsets is None else offsets.start,
            end_offset=None if offsets is None else offsets.end,
            checkpoint=replay.checkpoint,
            counts=CountsDocument.model_validate(replay.counts),
            status_counts=None if replay.status_counts is None else dict(replay.status_counts),
            unreadable=UnreadableDocument.model_validate(replay.unreadable),
            receiver_failure=None
            if replay.receiver_failure is None
            else ReceiverFailureDocument.model_validate(replay.receiver_failure),
            progress=pace.share,
            events_per_second=_to_a_tenth(pace.rate_events_s),
            eta_seconds=_to_a_tenth(pace.eta_s),
            estimated_finish_at=None if pace.eta_s is None else now_ms + round(pace.eta_s * 1000),
            created_at=replay.created_ms,
            started_at=replay.started_ms,
            heartbeat_at=replay.heartbeat_ms,
            finished_at=replay.finished_ms,
            worker=replay.worker,
            lease_epoch=replay.lease_epoch,
            claims_without_progress=replay.claims_without_progress,
            claims_in_vain=replay.claims_without_progress,
            error=replay.error,
        )


def _waiting_for(replay: Replay) -> str | None:
    if replay.awaits is None or replay.state is not ReplayState.OPEN:
        return replay.waiting_for
    return describe_awaited(replay.webhook_id, replay.window, replay.awaits)


def _to_a_tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


class FailureDocument(Document):
    """An event that could not be delivered."""

    model_config = example(
        {
            "offset": 121_377,
            "eventId": "evt_31f6",
            "attempts": 6,
            "status": 503,
            "reason": "HTTP 503 Service Unavailable",
            "durationMs": 32,
            "response": "upstream is down",
            "lastAttemptAt": "2026-11-21T08:04:36.120Z",
        }
    )

    offset: int
    event_id: str
    attempts: int
    status: int | None = Field(
        description="The HTTP status of the last attempt; null without a response."
    )
    reason: str
    duration_ms: int | None = Field(
        description="The latency of the last attempt; null without one, or if not stored."
    )
    response: str | None = Field(
        description="The first 1,024 bytes of the last response body, as text; null without a "
        "response, or if not stored."
    )
    last_attempt_at: Moment | None = Field(
        validation_alias="last_attempt_ms",
        description="When the last attempt ended; null without one, or if not stored.",
    )


class MoveDocument(Document):
    """A state change of a replay."""

    model_config = example(
        {
            "event": "take over",
            "state": "ONGOING",
            "leaseEpoch": 2,
            "actor": "worker-5d0c9a31",
            "reason": "no heartbeat from worker-3d4e5f02",
            "at": "2026-11-21T08:10:17.000Z",
        }
    )

    event: MoveEvent
    state: ReplayState = Field(description="The new state.")
    lease_epoch: int = Field(description="The number of claims by then.")
    actor: str | None = Field(
        description="The worker, the id of a developer's API key, or `operator`."
    )
    reason: str | None = Field(
        description="What a released replay waits for, why it failed, or which worker was taken "
        "over; in words."
    )
    at: Moment = Field(validation_alias="at_ms")


class MovesDocument(Document):
    """The state changes of a replay, the oldest first."""

    items: list[MoveDocument] = Field(
        description="The creation and the latest; with more than some hundred, not all."
    )


class SampleDocument(Document):
    """The progress of a replay at a time."""

    model_config = example(
        {
            "at": "2026-11-21T08:10:02.000Z",
            "checkpoint": 137_305,
            "counts": {"delivered": 4_070, "duplicates": 12, "failed": 1},
        }
    )

    at: Moment = Field(validation_alias="at_ms")
    checkpoint: int
    counts: CountsDocument


class SamplesDocument(Document):
    """Samples of a replay's progress, the oldest first."""

    items: list[SampleDocument] = Field(
        description="From the start of the delivery to its end: one per second in the first "
        "minute, later one per sixtieth of the time since the start."
    )
