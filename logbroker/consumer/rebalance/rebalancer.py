"""What a consumer does next to have its share of the group's partitions: pure, no clock.

Source: the paper, section 3.2, Algorithm 1.
"""

from dataclasses import dataclass
from enum import Enum, auto

from logbroker.consumer.rebalance.assignment import Assignment, GroupView, assign_partitions
from logbroker.groups.stored import TopicPartition


@dataclass(frozen=True, slots=True)
class Register:
    """Enter the consumer registry, then call `registered`."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the registries and watch them, then call `read`."""


@dataclass(frozen=True, slots=True)
class Release:
    """Deliver nothing of `places` any more, commit, give up those that are ours; `released`."""

    places: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim every partition, stop at the first that another holds; `claimed` or `refused`."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Begin:
    """Read the offsets of what is now ours and deliver from there, then call `begun`."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes, or until `until_s`."""

    until_s: float | None


Step = Register | Read | Release | Claim | Begin | Rest


class _Phase(Enum):
    ABSENT = auto()
    STALE = auto()
    RELEASING = auto()
    CLAIMING = auto()
    STARTING = auto()
    SETTLED = auto()


class Rebalancer:
    """One consumer's part in Algorithm 1.

    Ask `next_step`, do what it says, report what came of it: one of the methods that the step
    names, or `failed` where nobody knows. `changed` and `session_lost` may come between any two
    steps. A consumer whose own range did not change keeps it; the others release all they own
    before they claim.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._phase = _Phase.ABSENT
        self._consumer_id = ""
        self._is_changed = False
        self._pause_until_s: float | None = None
        self._refused_until_s: float | None = None
        self._wanted: Assignment = {}
        self._owned: Assignment = {}
        self._is_begun = False
        # What the ownership registry may have as ours, be it by a claim that nobody answered.
        self._perhaps_owned: frozenset[TopicPartition] = frozenset()

    @property
    def owned(self) -> Assignment:
        """What was claimed and not given up since."""
        return self._owned

    def next_step(self, now_s: float) -> Step:
        """What to do at `now_s`, by the clock that the other methods' times are of."""
        if self._pause_until_s is not None and now_s < self._pause_until_s:
            return Rest(self._pause_until_s)
        self._pause_until_s = None
        if self._is_changed and self._phase in (_Phase.CLAIMING, _Phase.SETTLED):
            self._phase = _Phase.STALE
        return self._step()

    def _step(self) -> Step:
        match self._phase:
            case _Phase.ABSENT:
                return Register()
            case _Phase.STALE:
                # What changes from here on, the read may have missed.
                self._is_changed = False
                return Read()
            case _Phase.RELEASING:
                self._owned = {}
                return Release(self._perhaps_owned)
            case _Phase.CLAIMING:
                self._perhaps_owned = frozenset(self._wanted)
                return Claim(self._wanted)
            case _Phase.STARTING:
                return Begin(self._owned)
            case _Phase.SETTLED:
                return Rest(None)

    def changed(self) -> None:
        """The group, its partitions, or the owner of one that was refused: look again."""
        self._is_changed = True
        if self._phase is _Phase.STALE:
            self._pause_until_s = None

    def session_lost(self) -> None:
        """The session is over, and with it registration and ownership."""
        self._forget()

    def unregistered(self, retry_s: float) -> None:
        """The registration is gone while the session lives on: register again at `retry_s`.

        What is owned stays so, but for what the last step may have done to it.
        """
        self.failed(retry_s)
        self._phase = _Phase.ABSENT

    def registered(self, consumer_id: str) -> None:
        """The consumer is in the registry under this id."""
        self._consumer_id = consumer_id
        self._phase = _Phase.STALE

    def read(self, view: GroupView) -> None:
        """The registries say this."""
        if self._consumer_id not in view.consumers:
            self._phase = _Phase.ABSENT
            return
        self._wanted = assign_partitions(view, self._consumer_id)
        if self._owned == self._wanted and self._perhaps_owned == self._owned.keys():
            self._phase = _Phase.SETTLED if self._is_begun or not self._owned else _Phase.STARTING
        else:
            self._phase = _Phase.RELEASING if self._perhaps_owned else _Phase.CLAIMING

    def released(self) -> None:
        """Nothing is ours any more."""
        self._perhaps_owned = frozenset()
        if self._refused_until_s is None:
            self._phase = _Phase.CLAIMING
            return
        self._phase = _Phase.STALE
        # Whatever changed since the refusal may well be what it was about.
        self._pause_until_s = None if self._is_changed else self._refused_until_s
        self._refused_until_s = None

    def claimed(self) -> None:
        """All that was to be claimed is ours."""
        self._owned = self._wanted
        self._is_begun = False
        self._phase = _Phase.STARTING

    def refused(self, retry_s: float) -> None:
        """Another owns one of the partitions: release all, and read again at `retry_s`."""
        self._refused_until_s = retry_s
        self._phase = _Phase.RELEASING

    def begun(self) -> None:
        """What is ours is delivered."""
        self._is_begun = True
        self._phase = _Phase.SETTLED

    def failed(self, retry_s: float) -> None:
        """The step may have been done, in part or not at all; go on at `retry_s`."""
        if self._phase is _Phase.CLAIMING:
            self._phase = _Phase.RELEASING
        self._pause_until_s = retry_s
