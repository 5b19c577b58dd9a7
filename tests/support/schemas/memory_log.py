"""An in-memory log of schema records, for registries without a broker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logbroker.schemas.domain.log_records import Decided, encode
from logbroker.schemas.domain.state import Outcome, RegistryState

Written = list[tuple[bytes, bytes]]


class MemoryLog:
    """One registry's view of `written`, which several registries may share.

    It reads what others wrote as late as possible. `meanwhile` are what others
    do between a decision and its append, the last one first. `writes_twice` is a producer that
    took a lost acknowledgement for a failure.
    """

    def __init__(self, written: Written | None = None, *, writes_twice: bool = False) -> None:
        self.written: Written = [] if written is None else written
        self.meanwhile: list[Callable[[], object]] = []
        self._writes_twice = writes_twice
        self._state = RegistryState()
        self._next = 0

    @property
    def cluster(self) -> str:
        return "memory"

    @contextmanager
    def reading(self) -> Iterator[RegistryState]:
        yield self._state

    def append(self, decided: Decided) -> bool:
        while self.meanwhile:
            self.meanwhile.pop()()
        own = len(self.written)
        self.written += [encode(decided)] * (2 if self._writes_twice else 1)
        return own in self._read()

    def catch_up(self) -> None:
        self._read()

    def _read(self) -> list[int]:
        """Return the offsets of the new records that count."""
        new = range(self._next, len(self.written))
        self._next = len(self.written)
        return [each for each in new if self._state.apply(*self.written[each]) is Outcome.COUNTS]
