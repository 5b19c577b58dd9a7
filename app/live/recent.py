"""Which events were delivered lately, to know a second copy by."""

from collections import deque


class RecentDigests:
    """The digests of the last `entries_max` different events; the oldest is forgotten first."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._known: set[int] = set()
        self._by_age: deque[int] = deque()

    def __contains__(self, digest: int) -> bool:
        return digest in self._known

    def add(self, digest: int) -> None:
        """Remember a digest."""
        if digest in self._known:
            return
        if len(self._by_age) == self._entries_max:
            self._known.remove(self._by_age.popleft())
        self._known.add(digest)
        self._by_age.append(digest)
