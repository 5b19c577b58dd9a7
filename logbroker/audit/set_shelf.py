"""Sets of sequences by key, of which only so many are kept unpacked as a bound allows."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from logbroker.client.audit_format.sequence_set import SequenceSet

UNPACKED_BYTES_MAX: Final = 256 * 1024 * 1024
"""The sets of some two thousand million sequences without gaps."""

_Key = TypeVar("_Key", bound=Hashable)


class SetShelf(Generic[_Key]):
    """Unions of sets.

    Events of one window come close together, so the sets that were used least recently are packed
    as their texts: one without gaps takes a few hundred bytes then.
    """

    def __init__(self, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        """An empty one."""
        self._bytes_max = unpacked_bytes_max
        self._bytes = 0
        self._unpacked: OrderedDict[_Key, SequenceSet] = OrderedDict()
        self._packed: dict[_Key, str] = {}

    def unite(self, key: _Key, sequences: SequenceSet) -> None:
        """Add these to the set of a key, which there may not have been before."""
        own = self._taken(key)
        before = own.memory_bytes
        own.update(sequences)
        self._bytes += own.memory_bytes - before
        self._pack_rest()

    def __getitem__(self, key: _Key) -> SequenceSet:
        """The set of a key, empty if nothing came for it; not to be changed."""
        if key not in self._unpacked and key not in self._packed:
            return SequenceSet()
        own = self._taken(key)
        self._pack_rest()
        return own

    def _taken(self, key: _Key) -> SequenceSet:
        """The set of a key, unpacked, as the one that was used last."""
        own = self._unpacked.pop(key, None)
        if own is None:
            text = self._packed.pop(key, None)
            own = SequenceSet() if text is None else SequenceSet.decode(text)
            self._bytes += own.memory_bytes
        self._unpacked[key] = own
        return own

    def _pack_rest(self) -> None:
        """Pack the sets that were not used for longest, but never the one used last."""
        while self._bytes > self._bytes_max and len(self._unpacked) > 1:
            key, oldest = self._unpacked.popitem(last=False)
            self._bytes -= oldest.memory_bytes
            self._packed[key] = oldest.encode()
