"""The nouns of the replay service, as values; times are milliseconds since 1970, UTC."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self

from app.replay.states import ReplayState


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
    """One record that was given up: `status` is the last HTTP answer, None when there was none."""

    offset: int
    event_id: str
    attempts: int
    status: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """A webhook to be: where events are to be sent, what its owner calls it, what signs them."""

    url: str
    description: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A target of events. `secret` signs its requests ("whsec_...") and is kept out of `repr`."""

    id: str
    url: str
    description: str
    secret: str = field(repr=False)
    created_ms: int


@dataclass(frozen=True, slots=True)
class NewReplay:
    """A replay to be: every event of `window` that is owed to the webhook."""

    webhook_id: str
    window: Window


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay and how far it is.

    Everything below `checkpoint` is delivered, a duplicate, or listed as failed, and `counts`
    counts exactly that. `lease_epoch` is the number of times a worker has claimed it; `worker`
    names the last one to do so, unless it gave the replay back. `offsets` and `checkpoint` are
    known once delivery has begun.
    """

    id: str
    webhook_id: str
    window: Window
    state: ReplayState
    lease_epoch: int
    worker: str | None
    offsets: OffsetRange | None
    checkpoint: int | None
    counts: Counts
    error: str | None
    created_ms: int
    started_ms: int | None
    heartbeat_ms: int | None
    finished_ms: int | None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a replay: it holds as long as `epoch` is the replay's own."""

    replay_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A replay handed to a worker, with the webhook to deliver to."""

    lease: Lease
    replay: Replay
    webhook: Webhook


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's name for one creation, and what it asked for under that name."""

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str, body: bytes) -> Self:
        """The key with the fingerprint of `body`: equal bodies are the same request."""
        return cls(key, sha256(body).hexdigest())
