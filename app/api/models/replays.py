"""Bodies of the routes of replays."""

from typing import Annotated, Literal, Self

from pydantic import Field

from app.api.models.documents import Document, Moment, RequestBody, Time, example
from app.domain.model import AwaitedRestore, Counts, NewReplay, Replay, Window
from app.domain.options import (
    BATCH_EVENTS_MAX,
    EVENT_TYPES_MAX,
    EVENTS_PER_SECOND,
    EVENTS_PER_SECOND_MAX,
    IN_FLIGHT_MAX,
    NoticeStyle,
    Only,
    ReplayOptions,
    Source,
)
from app.domain.progress import progress
from app.domain.restores import describe_awaited
from app.domain.states import ReplayState

EventTypeGlob = Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]


class ReplayRequest(RequestBody):
    """A replay to start: every event owed to the webhook with `from` <= time < `to`."""

    model_config = example(
        {
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00Z",
            "to": "2026-11-21T08:00:00Z",
            "eventTypes": ["follow.*", "dm.sent"],
            "maxEventsPerSecond": 500,
        }
    )

    webhook_id: str = Field(min_length=1, max_length=256)
    from_ms: Time = Field(alias="from")
    to_ms: Time = Field(alias="to")
    source: Source = Field(
        Source.LOG,
        description="`archive`: for windows that the log does not keep any more. Such a replay "
        "waits until its events are restored from what was loaded, which an operator's job does.",
    )
    event_types: list[EventTypeGlob] = Field(
        [],
        max_length=EVENT_TYPES_MAX,
        description="Globs (`*` any characters, `?` one): an event comes if one of them matches "
        "its type. Without any, all come.",
    )
    only: Only = Field(
        Only.ALL, description="`failed`: only events that no live delivery has brought."
    )
    max_events_per_second: int = Field(
        EVENTS_PER_SECOND, strict=True, ge=1, le=EVENTS_PER_SECOND_MAX
    )
    max_in_flight: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=IN_FLIGHT_MAX,
        description="Requests under way at a time; with 1 the events arrive in strict order. "
        "null is the worker's own setting.",
    )
    batch_size: int = Field(
        1,
        strict=True,
        ge=1,
        le=BATCH_EVENTS_MAX,
        description="Events that one POST may bring; above 1 its body is a JSON array of them.",
    )
    target_url: str | None = Field(
        None,
        description="Where the events go instead of the webhook's URL. Its receiver must prove, "
        "at once, that it is the webhook's owner's, as at a registration.",
    )
    dry_run: bool = Field(
        False, strict=True, description="Only tell what the replay would bring; queue nothing."
    )

    @property
    def new_replay(self) -> NewReplay:
        """The replay asked for."""
        window = Window(self.from_ms, self.to_ms)
        return NewReplay(self.webhook_id, window, self._options, source=self.source)

    @property
    def _options(self) -> ReplayOptions:
        return ReplayOptions(
            event_types=tuple(self.event_types),
            only=self.only,
            max_events_per_second=self.max_events_per_second,
            max_in_flight=self.max_in_flight,
            batch_size=self.batch_size,
            target_url=self.target_url,
        )


class EstimateDocument(Document):
    """What a replay would bring, were it started now."""

    model_config = example(
        {
            "partition": 3,
            "startOffset": 120_400,
            "endOffset": 188_020,
            "events": 16_310,
            "bytes": 5_872_000,
            "isExact": True,
            "isUpperBound": False,
            "estimatedSeconds": 20.4,
        }
    )

    partition: int
    start_offset: int
    end_offset: int = Field(description="The first offset that would not be read.")
    events: int
    bytes: int = Field(description="Of the bodies, without HTTP around them.")
    is_exact: bool = Field(
        description="False: reckoned from samples of a long range, or an upper bound."
    )
    is_upper_bound: bool = Field(
        description="True when, with `only: failed`, there was no time to learn of all that was "
        "delivered live, or it is not known any more: some of that is counted too."
    )
    estimated_seconds: float = Field(
        description="Without retries, and without waiting for a worker."
    )


class CountsDocument(Document):
    """What became of the events below the checkpoint."""

    delivered: int
    duplicates: int
    failed: int

    @classmethod
    def of(cls, counts: Counts) -> Self:
        """The document of counts."""
        return cls(delivered=counts.delivered, duplicates=counts.duplicates, failed=counts.failed)


class OptionsDocument(Document):
    """How a replay is to be done."""

    event_types: list[str]
    only: Only
    max_events_per_second: int
    max_in_flight: int | None
    batch_size: int
    target_url: str | None

    @classmethod
    def of(cls, options: ReplayOptions) -> Self:
        """The document of options."""
        return cls(
            event_types=list(options.event_types),
            only=options.only,
            max_events_per_second=options.max_events_per_second,
            max_in_flight=options.max_in_flight,
            batch_size=options.batch_size,
            target_url=options.target_url,
        )


class AwaitedRestoreDocument(Document):
    """What a replay of the archive waits for."""

    kind: Literal["restore"] = "restore"
    job: Literal["rewind-jobs restore"] = Field(
        default="rewind-jobs restore", description="What an operator runs for it."
    )
    partition: int = Field(description="Of `delivery_log`: where its events were.")
    below: int = Field(description="The offset of `delivery_log` that all of them were below.")
    missing: str | None = Field(
        description="What the last run of the job could not find; null before there was one."
    )

    @classmethod
    def of(cls, awaits: AwaitedRestore) -> Self:
        """The document of what is awaited."""
        return cls(partition=awaits.partition, below=awaits.below, missing=awaits.missing)


class ReplayDocument(Document):
    """A replay and how far it is."""

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
            "notice": "rewind",
            "state": "ONGOING",
            "waitingFor": None,
            "waitsFor": None,
            "partition": 3,
            "startOffset": 120_400,
            "endOffset": 188_020,
            "checkpoint": 137_305,
            "counts": {"delivered": 4_070, "duplicates": 12, "failed": 1},
            "statusCounts": {"200": 4_070, "503": 1},
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
            "claimsInVain": 0,
            "error": None,
        }
    )

    id: str
    account_id: str
    origin: str | None = Field(
        description="The data centre whose log is read, by its workers; null for whichever claims "
        "it first, when it was asked for before they were told apart."
    )
    source: Source = Field(
        description="Which topic the offsets are of: `log` is `delivery_log`, `archive` is "
        "`delivery_archive`."
    )
    webhook_id: str
    from_: Moment = Field(serialization_alias="from")
    to: Moment
    options: OptionsDocument
    retry_of: str | None = Field(
        description="The replay whose failures are all that this one brings."
    )
    notice: NoticeStyle = Field(description="The form in which the webhook is told of the end.")
    state: ReplayState
    waiting_for: str | None = Field(
        description="What an OPEN replay waits for, when that is not a worker; in words."
    )
    waits_for: AwaitedRestoreDocument | None = Field(
        description="What has to be done before it can be delivered."
    )
    partition: int | None = Field(description="The one partition that is read; null until then.")
    start_offset: int | None
    end_offset: int | None = Field(description="The first offset that is not read.")
    checkpoint: int | None = Field(
        description="Below this offset everything is delivered, a duplicate or listed as failed."
    )
    counts: CountsDocument
    status_counts: dict[str, int] | None = Field(
        description="What the events that `counts` counts as delivered or failed were answered "
        "with at last, by HTTP status; `none` stands for no answer. null where it was not noted."
    )
    progress: float = Field(ge=0, le=1, description="The share of the offsets that is done.")
    events_per_second: float | None = Field(
        description="The mean over the time in which a worker had it."
    )
    eta_seconds: float | None
    estimated_finish_at: Moment | None
    created_at: Moment
    started_at: Moment | None
    heartbeat_at: Moment | None
    finished_at: Moment | None
    worker: str | None
    lease_epoch: int = Field(description="How often a worker has claimed the replay.")
    claims_in_vain: int = Field(description="How many of the last claims brought it no further.")
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
            options=OptionsDocument.of(replay.options),
            retry_of=replay.retry_of,
            notice=replay.notice,
            state=replay.state,
            waiting_for=_waiting_for(replay),
            waits_for=None if replay.awaits is None else AwaitedRestoreDocument.of(replay.awaits),
            partition=None if offsets is None else offsets.partition,
            start_offset=None if offsets is None else offsets.start,
            end_offset=None if offsets is None else offsets.end,
            checkpoint=replay.checkpoint,
            counts=CountsDocument.of(replay.counts),
            status_counts=None if replay.status_counts is None else dict(replay.status_counts),
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
            claims_in_vain=replay.claims_in_vain,
            error=replay.error,
        )


def _waiting_for(replay: Replay) -> str | None:
    if replay.awaits is None or replay.state is not ReplayState.OPEN:
        return replay.waiting_for
    return describe_awaited(replay.webhook_id, replay.window, replay.awaits)


def _to_a_tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
