"""What a replay has seen already, in bounded memory."""

from collections import deque
from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
"""128 bits: among 10^9 events two different ones share a digest once in 10^20 replays."""


def event_digest(event_id: str, value: bytes) -> bytes:
    """The 16 bytes that stand for an event: the same id with the same body is the same event.

    A producer that sends one id with two bodies has made two events, and both are owed.
    """
    identity = event_id.encode("utf-8", "surrogatepass")
    # The length in front tells where the id ends, so no id can borrow from its body.
    return blake2b(b"%d:%b%b" % (len(identity), identity, value), digest_size=DIGEST_BYTES).digest()


class SeenHashes:
    """The digests of the last `entries_max` different events; the oldest is forgotten first.

    An entry costs about 150 bytes.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._known: set[bytes] = set()
        self._by_age: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, digest: bytes) -> bool:
        """Remember a digest: True if it is new."""
        if digest in self._known:
            return False
        if len(self._by_age) == self._entries_max:
            self._known.remove(self._by_age.popleft())
        self._known.add(digest)
        self._by_age.append(digest)
        return True
