"""Sets of sequences by key, in bounded memory: the least recently used ones are compressed."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from logbroker.client.audit_format.sequence_set import SequenceSet

UNPACKED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Memory for the sets of two billion consecutive sequences."""

_Key = TypeVar("_Key", bound=Hashable)


class SetStore(Generic[_Key]):
    """Unions of sets by key.

    Reports of one window are close together, so the least recently used sets are stored as text:
    one without gaps takes a few hundred bytes.
    """

    def __init__(self, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        """Create an empty store."""
        self._bytes_max = unpacked_bytes_max
        self._bytes = 0
        self._unpacked: OrderedDict[_Key, SequenceSet] = OrderedDict()
        self._packed: dict[_Key, str] = {}

    def add(self, key: _Key, sequences: SequenceSet) -> None:
        """Add sequences to the set of a key."""
        own = self._unpack(key)
        before = own.memory_bytes
        own.update(sequences)
        self._bytes += own.memory_bytes - before
        self._pack_rest()

    def __getitem__(self, key: _Key) -> SequenceSet:
        """Return the set of a key, empty if nothing was added; not to be changed."""
        if key not in self._unpacked and key not in self._packed:
            return SequenceSet()
        own = self._unpack(key)
        self._pack_rest()
        return own

    def _unpack(self, key: _Key) -> SequenceSet:
        """Return the set of a key, unpacked, as the most recently used one."""
        own = self._unpacked.pop(key, None)
        if own is None:
            text = self._packed.pop(key, None)
            own = SequenceSet() if text is None else SequenceSet.decode(text)
            self._bytes += own.memory_bytes
        self._unpacked[key] = own
        return own

    def _pack_rest(self) -> None:
        """Pack the least recently used sets, except the last one."""
        while self._bytes > self._bytes_max and len(self._unpacked) > 1:
            key, oldest = self._unpacked.popitem(last=False)
            self._bytes -= oldest.memory_bytes
            self._packed[key] = oldest.encode()
