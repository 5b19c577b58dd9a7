"""The entities of the replay service, as values; times are milliseconds since 1970, UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Self

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions, Ordering
from app.domain.options import NoticeStyle, ReplayOptions, ReplayReason, Source
from app.domain.receiver_failure import ReceiverFailure
from app.domain.states import ReplayState


@dataclass(frozen=True, slots=True)
class Window:
    """A range of event times `[from_ms, to_ms)`."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition; empty if they are equal."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Counts:
    """The events below a checkpoint, by outcome."""

    delivered: int = 0
    duplicates: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """An event that a replay could not deliver.

    `status` is the HTTP status of the last response, None without a response. `duration_ms` is the
    duration of the last attempt, `response` the beginning of its body, `last_attempt_ms` when it
    ended, and `worker` who made it; None if unknown.
    """

    offset: int
    event_id: str
    attempts: int
    status: int | None
    reason: str
    duration_ms: int | None = None
    response: str | None = None
    last_attempt_ms: int | None = None
    worker: str | None = None


class Validation(StrEnum):
    """How the receiver of a webhook is verified."""

    PING = "ping"
    """It answers a signed POST with a 2xx status (Standard Webhooks)."""

    CRC = "crc"
    """It answers a challenge by means of the secret (Twitter)."""


class WebhookStatus(StrEnum):
    """Whether events are sent to a webhook."""

    PENDING = "PENDING"
    """Not yet: the receiver at its URL is not verified."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    """No longer: its owner disabled it, or deliveries failed for too long."""


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """A webhook to create."""

    url: str
    description: str
    secret: str = field(repr=False)
    account_id: str = DEFAULT_ACCOUNT
    validation: Validation = Validation.PING
    auto_recovery: bool = True
    options: EndpointOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook.

    `secret` ("whsec_...") signs its requests; until `previous_secret_until_ms`, the previous one
    signs them too. `repr` hides both. `status_reason` says why it is not ENABLED.
    `failing_since_ms` is the time since which all deliveries fail. `auto_recovery` says whether a
    replay sends what it missed once the receiver accepts events again.
    `options` is None without any.
    """

    id: str
    account_id: str
    url: str
    description: str
    validation: Validation
    status: WebhookStatus
    status_reason: str | None
    secret: str = field(repr=False)
    previous_secret: str | None = field(repr=False)
    previous_secret_until_ms: int | None
    validated_ms: int | None
    failing_since_ms: int | None
    created_ms: int
    auto_recovery: bool = True
    options: EndpointOptions | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether its events are sent in the order of the log, one at a time."""
        return self.options is not None and self.options.ordering is Ordering.STRICT

    def secrets_at(self, now_ms: int) -> tuple[str, ...]:
        """The secrets that sign at `now_ms`, the current one first."""
        return signing_secrets(
            self.secret, self.previous_secret, self.previous_secret_until_ms, now_ms
        )


def signing_secrets(
    secret: str, previous: str | None, until_ms: int | None, now_ms: int
) -> tuple[str, ...]:
    """The secrets that sign at `now_ms`: also the previous one, before `until_ms`."""
    if previous is None or until_ms is None or until_ms <= now_ms:
        return (secret,)
    return (secret, previous)


@dataclass(frozen=True, slots=True)
class UnreadableCounts:
    """Batches of the log that a replay skipped because they cannot be read, and their offsets.

    How many events they held is unknown, and whether any was addressed to the webhook.
    """

    batches: int = 0
    offsets: int = 0


@dataclass(frozen=True, slots=True)
class AwaitedRestore:
    """The restore that a replay of the archive awaits.

    It restores the records of the replay's webhook and window in `partition` of `delivery_log`,
    below the offset `below`. `missing` says what the last restore did not find.
    """

    partition: int
    below: int
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class NewReplay:
    """A replay to create: the events of `window` that are addressed to the webhook.

    `retry_of` is a replay whose failures are delivered again, and what it did not reach. `origin`
    is the data centre whose log is read; if empty, that of the first worker that claims it. A
    replay of the archive has an origin, and `awaits` a restore unless it is a retry.
    """

    webhook_id: str
    window: Window
    options: ReplayOptions = field(default_factory=ReplayOptions)
    retry_of: str | None = None
    notice: NoticeStyle = NoticeStyle.REWIND
    origin: str = ""
    source: Source = Source.LOG
    awaits: AwaitedRestore | None = None
    reason: ReplayReason = ReplayReason.REQUEST


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay and its progress.

    - `origin`: the data centre of `offsets` and failures; empty until it is assigned.
    - `source`: the topic of `offsets`.
    - `lease_epoch`: the number of claims. `worker`: the last one, unless it gave the replay back.
    - `claims_without_progress`: consecutive claims without progress.
    - `offsets`, `checkpoint`: set when delivery begins. Every event below the checkpoint is
      delivered, a duplicate, filtered out, or listed as failed, and counted in `counts`.
    - `status_counts`: delivered and failed events by the HTTP status of their last response, such
      as {"200": 17, "none": 1}; None if unknown.
    - `unreadable`: what was skipped below the checkpoint because it cannot be read.
    - `receiver_failure`: the failed attempts of an ONGOING replay whose receiver fails.
    - `waiting_for`: why an OPEN replay is postponed.
    - `awaits`: the restore without which no worker can claim it.
    - `idle_ms`: the time without a worker between its start and its last claim.
    - `reason`: why it was created.
    - `available_from_ms`: the time from which a recovery found its window in the log, which no
      longer retained the beginning; None if it found all of it.
    """

    id: str
    account_id: str
    origin: str
    source: Source
    webhook_id: str
    window: Window
    options: ReplayOptions
    retry_of: str | None
    notice: NoticeStyle
    state: ReplayState
    lease_epoch: int
    claims_without_progress: int
    worker: str | None
    offsets: OffsetRange | None
    checkpoint: int | None
    counts: Counts
    status_counts: Mapping[str, int] | None = field(hash=False)
    error: str | None
    waiting_for: str | None
    awaits: AwaitedRestore | None
    idle_ms: int
    created_ms: int
    started_ms: int | None
    heartbeat_ms: int | None
    finished_ms: int | None
    receiver_failure: ReceiverFailure | None = None
    unreadable: UnreadableCounts = field(default_factory=UnreadableCounts)
    reason: ReplayReason = ReplayReason.REQUEST
    available_from_ms: int | None = None


def recovered_origin(reason: ReplayReason, origin: str) -> str | None:
    """The only data centre whose events a replay sends; None for all.

    A recovery sends those that its own data centre delivers live: the other one has its own.
    """
    return origin if reason is ReplayReason.RECOVERY and origin else None


def unread_offsets(replay: Replay) -> OffsetRange | None:
    """The offsets that a replay did not reach before it FAILED or was CANCELLED; None if none."""
    if replay.state not in (ReplayState.FAILED, ReplayState.CANCELLED) or replay.offsets is None:
        return None
    offsets = replay.offsets
    start = offsets.start if replay.checkpoint is None else replay.checkpoint
    return None if start >= offsets.end else OffsetRange(offsets.partition, start, offsets.end)


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    """A filter of replays; None, and no `states`, match any.

    `[created_from_ms, created_to_ms)` is a range of creation times. `with_failures` matches only
    replays that have failures, and `reason` those that were created because of it.
    """

    states: frozenset[ReplayState] = frozenset()
    webhook_id: str | None = None
    account_id: str | None = None
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    with_failures: bool = False
    reason: ReplayReason | None = None


@dataclass(frozen=True, slots=True)
class ReplayNotice:
    """A notification of an ended replay to its webhook; `attempt` counts from 1."""

    replay: Replay
    webhook: Webhook
    attempt: int


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """Statistics of all replays; those other than `by_state` are by data centre.

    - `oldest_open_s`: the longest wait of an OPEN replay for a worker, 0 without one.
    - `late_heartbeats`: held replays whose lease has expired.
    - `oldest_unrestored_s`: the longest wait for a restore, 0 without one. Such replays are not in
      `oldest_open_s`.
    """

    by_state: Mapping[ReplayState, int]
    oldest_open_s: Mapping[str, float]
    late_heartbeats: Mapping[str, int]
    oldest_unrestored_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AwaitingRestore:
    """What the restore job of one data centre has to do.

    `replays` await their records, oldest first; `further_partitions` are those of more replays,
    beyond the limit of the list. `needed_from` is the lowest offset of `delivery_archive`, by
    partition, that a restored replay may still read.
    """

    replays: tuple[Replay, ...]
    further_partitions: frozenset[int]
    needed_from: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive right of `worker` to run a replay, while `epoch` is the replay's epoch."""

    replay_id: str
    epoch: int
    worker: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """A replay that a worker has claimed, with its webhook.

    `is_takeover` if the lease of another worker had expired. `has_begun` if the offsets to deliver
    were stored with the claim.
    """

    lease: Lease
    replay: Replay
    webhook: Webhook
    is_takeover: bool
    has_begun: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The Idempotency-Key of a request, and a hash of the request's body."""

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str, body: bytes) -> Self:
        """The key of a request with `body`; equal bodies are the same request."""
        return cls(key, sha256(body).hexdigest())
