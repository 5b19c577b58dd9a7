"""The state machine of one consumer's rebalance.

Source: the paper, section 3.2, Algorithm 1.
"""

from dataclasses import dataclass
from enum import Enum, auto

from logbroker.consumer.rebalance.assignment import Assignment, GroupView, assign_partitions
from logbroker.groups.stored import TopicPartition


@dataclass(frozen=True, slots=True)
class Register:
    """Register the consumer, then call `registered`."""


@dataclass(frozen=True, slots=True)
class ReadRegistries:
    """Read the registries and watch them, then call `read`."""


@dataclass(frozen=True, slots=True)
class Release:
    """Revoke and commit `topic_partitions`, release the owned ones, then call `released`."""

    topic_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim every partition until one has another owner; then call `claimed` or `refused`."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class StartStreams:
    """Load the offsets of the owned partitions, start the streams there, then call `started`."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something changes, or until `until_s`."""

    until_s: float | None


Step = Register | ReadRegistries | Release | Claim | StartStreams | Wait


class _Phase(Enum):
    ABSENT = auto()
    STALE = auto()
    RELEASING = auto()
    CLAIMING = auto()
    STARTING = auto()
    SETTLED = auto()


class Rebalancer:
    """One consumer's part in Algorithm 1.

    The caller executes `next_step` and reports the result with a method that the step names, or
    with `failed` if the result is unknown. `mark_changed` and `session_lost` may come between any
    two steps. A consumer keeps its range if it has not changed; otherwise it releases all
    partitions before it claims.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._phase = _Phase.ABSENT
        self._consumer_id = ""
        self._is_changed = False
        self._pause_until_s: float | None = None
        self._refused_until_s: float | None = None
        self._target: Assignment = {}
        self._owned: Assignment = {}
        self._is_started = False
        # Partitions that the registry may list as owned, including claims without a response.
        self._possibly_owned: frozenset[TopicPartition] = frozenset()

    @property
    def owned(self) -> Assignment:
        """The partitions that are claimed and not released."""
        return self._owned

    def next_step(self, now_s: float) -> Step:
        """Return the step to execute at `now_s`, on the clock of the other methods' times."""
        if self._pause_until_s is not None and now_s < self._pause_until_s:
            return Wait(self._pause_until_s)
        self._pause_until_s = None
        if self._is_changed and self._phase in (_Phase.CLAIMING, _Phase.SETTLED):
            self._phase = _Phase.STALE
        return self._step()

    def _step(self) -> Step:
        match self._phase:
            case _Phase.ABSENT:
                return Register()
            case _Phase.STALE:
                # The read may miss changes from here on.
                self._is_changed = False
                return ReadRegistries()
            case _Phase.RELEASING:
                self._owned = {}
                return Release(self._possibly_owned)
            case _Phase.CLAIMING:
                self._possibly_owned = frozenset(self._target)
                return Claim(self._target)
            case _Phase.STARTING:
                return StartStreams(self._owned)
            case _Phase.SETTLED:
                return Wait(None)

    def mark_changed(self) -> None:
        """Record that the group, its partitions, or the owner of a refused one changed."""
        self._is_changed = True
        if self._phase is _Phase.STALE:
            self._pause_until_s = None

    def session_lost(self) -> None:
        """Reset after the loss of the session, which ends registration and ownership."""
        self._forget()

    def registration_lost(self, retry_at_s: float) -> None:
        """Register again at `retry_at_s`: the registration is missing, but the session is alive.

        Ownership remains, except for partitions that the last step may have released.
        """
        self.failed(retry_at_s)
        self._phase = _Phase.ABSENT

    def registered(self, consumer_id: str) -> None:
        """Record that the consumer is registered under this id."""
        self._consumer_id = consumer_id
        self._phase = _Phase.STALE

    def read(self, view: GroupView) -> None:
        """Record the content of the registries."""
        if self._consumer_id not in view.consumers:
            self._phase = _Phase.ABSENT
            return
        self._target = assign_partitions(view, self._consumer_id)
        if self._owned == self._target and self._possibly_owned == self._owned.keys():
            self._phase = _Phase.SETTLED if self._is_started or not self._owned else _Phase.STARTING
        else:
            self._phase = _Phase.RELEASING if self._possibly_owned else _Phase.CLAIMING

    def released(self) -> None:
        """Record that this consumer owns nothing."""
        self._possibly_owned = frozenset()
        if self._refused_until_s is None:
            self._phase = _Phase.CLAIMING
            return
        self._phase = _Phase.STALE
        # A change since the refusal may have freed the partition.
        self._pause_until_s = None if self._is_changed else self._refused_until_s
        self._refused_until_s = None

    def claimed(self) -> None:
        """Record that all claimed partitions are owned."""
        self._owned = self._target
        self._is_started = False
        self._phase = _Phase.STARTING

    def refused(self, retry_at_s: float) -> None:
        """Record that a partition has another owner: release all, read again at `retry_at_s`."""
        self._refused_until_s = retry_at_s
        self._phase = _Phase.RELEASING

    def started(self) -> None:
        """Record that the streams read the owned partitions."""
        self._is_started = True
        self._phase = _Phase.SETTLED

    def failed(self, retry_at_s: float) -> None:
        """Record that the step may be done, in part or not at all; continue at `retry_at_s`."""
        if self._phase is _Phase.CLAIMING:
            self._phase = _Phase.RELEASING
        self._pause_until_s = retry_at_s
