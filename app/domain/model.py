"""The nouns of the replay service, as values; times are milliseconds since 1970, UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Self

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.options import NoticeStyle, ReplayOptions, Source
from app.domain.states import ReplayState


@dataclass(frozen=True, slots=True)
class Window:
    """The event times `[from_ms, to_ms)` that a replay asks for."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition; equal ends hold nothing."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the records below a checkpoint."""

    delivered: int = 0
    duplicates: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that was given up: `status` is the last HTTP answer, None when there was none.

    `duration_ms` is how long the last attempt took, and `response` how the body of its answer
    began; None where there was none, or nobody noted it.
    """

    offset: int
    event_id: str
    attempts: int
    status: int | None
    reason: str
    duration_ms: int | None = None
    response: str | None = None


class Validation(StrEnum):
    """How the owner of a webhook proves that its receiver is theirs."""

    PING = "ping"
    """The receiver takes a signed POST (Standard Webhooks)."""

    CRC = "crc"
    """The receiver answers a challenge that takes the secret to answer (Twitter)."""


class WebhookStatus(StrEnum):
    """Whether anything is sent to a webhook."""

    PENDING = "PENDING"
    """Not yet: nobody has proved that the receiver at its URL is theirs."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    """Not any more: its owner wants it so, or its receiver would take nothing."""


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """A webhook to be: where events are to be sent, what its owner calls it, what signs them."""

    url: str
    description: str
    secret: str = field(repr=False)
    account_id: str = DEFAULT_ACCOUNT
    validation: Validation = Validation.PING


@dataclass(frozen=True, slots=True)
class Webhook:
    """A target of events.

    `secret` signs its requests ("whsec_..."); the one before signs them as well until
    `previous_secret_until_ms`. Both are kept out of `repr`. `status_reason` says in words why
    it is not ENABLED; `failing_since_ms` is when its receiver began to take nothing.
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

    def secrets_at(self, now_ms: int) -> tuple[str, ...]:
        """The secrets that sign at `now_ms`, the current one first."""
        until_ms = self.previous_secret_until_ms
        if self.previous_secret is None or until_ms is None or until_ms <= now_ms:
            return (self.secret,)
        return (self.secret, self.previous_secret)


@dataclass(frozen=True, slots=True)
class AwaitedRestore:
    """What a replay of the archive waits for: that its records are brought back.

    They are those of its webhook and window in `partition` of `delivery_log`, below the offset
    `below`. `missing` says in words what the last attempt did not find.
    """

    partition: int
    below: int
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class NewReplay:
    """A replay to be: every event of `window` that is owed to the webhook and fits `options`.

    `retry_of` names a replay whose failures are all that is to be delivered; `origin` the data
    centre whose log is to be read, by its workers: empty for whichever claims it first. One of the
    archive is of a data centre, and `awaits` a restore, unless it brings failures alone.
    """

    webhook_id: str
    window: Window
    options: ReplayOptions = field(default_factory=ReplayOptions)
    retry_of: str | None = None
    notice: NoticeStyle = NoticeStyle.REWIND
    origin: str = ""
    source: Source = Source.LOG
    awaits: AwaitedRestore | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay and how far it is.

    Everything below `checkpoint` is delivered, a duplicate, or listed as failed, and `counts`
    counts exactly that. `lease_epoch` is the number of times a worker has claimed it; `worker`
    names the last one to do so, unless it gave the replay back. `offsets` and `checkpoint` are
    known once delivery has begun. `claims_in_vain` counts the last claims that brought it no
    further; `waiting_for` says what an OPEN replay waits for, when that is not a worker. `idle_ms`
    is how long nobody worked on it between its start and its last claim. `origin` is the data
    centre that `offsets` and failures name offsets of; empty until one has claimed it, for a
    replay that was stored before data centres were told apart. `source` says in which of its topics
    these offsets lie. Nobody can claim a replay that `awaits` its records; their offsets are known
    once they are there. `status_counts` tells what the events that `counts` counts as delivered or
    failed were answered with at last, as {"200": 17, "none": 1}; None where it was not noted.
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
    claims_in_vain: int
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


@dataclass(frozen=True, slots=True)
class Notice:
    """The end of a replay, to be told to its webhook; `attempt` counts from 1."""

    replay: Replay
    webhook: Webhook
    attempt: int


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """The replays as an operator watches them.

    By data centre: `oldest_open_s` is how long the OPEN one that waits longest has waited, 0
    without one; `late_heartbeats` counts those held by a worker whose lease has ended.
    `oldest_unrestored_s` is how long the one that waits longest for a restore has waited, 0 without
    one: no worker could do anything about that, so it does not count as OPEN above.
    """

    by_state: Mapping[ReplayState, int]
    oldest_open_s: Mapping[str, float]
    late_heartbeats: Mapping[str, int]
    oldest_unrestored_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AwaitingRestore:
    """What one data centre's restore job has to do, as of one moment.

    `replays` wait for their records, the one that waits longest first; `further_partitions` are
    those of more that wait, and were too many for the list. `needed_from` is the lowest offset of
    `delivery_archive`, by partition, that a replay which has its records may still read.
    """

    replays: tuple[Replay, ...]
    further_partitions: frozenset[int]
    needed_from: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of `worker` to work on a replay: it holds while `epoch` is the replay's own."""

    replay_id: str
    epoch: int
    worker: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """A replay handed to a worker, with the webhook to deliver to.

    `is_takeover` when the worker before did not hand it over: its lease has ended.
    """

    lease: Lease
    replay: Replay
    webhook: Webhook
    is_takeover: bool


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's name for one creation, and what it asked for under that name."""

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str, body: bytes) -> Self:
        """The key with the fingerprint of `body`: equal bodies are the same request."""
        return cls(key, sha256(body).hexdigest())
