"""A compact set of offsets of one partition."""

from typing import Final

_PAGE_BITS: Final = 11
_PAGE_BYTES: Final = 2**_PAGE_BITS // 8
_IN_PAGE: Final = 2**_PAGE_BITS - 1

PAGES_MAX: Final = 100_000
"""Some 40 MB: two hundred million consecutive offsets."""


class OffsetSet:
    """A bitmap in pages of 2,048 offsets, allocated when one of them is added."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages: dict[int, bytearray] = {}
        self._pages_max = pages_max
        self.is_full = False
        """Whether an offset was rejected because the set is full."""

    def __contains__(self, offset: int) -> bool:
        page = self._pages.get(offset >> _PAGE_BITS)
        if page is None:
            return False
        place = offset & _IN_PAGE
        return bool(page[place >> 3] >> (place & 7) & 1)

    def add(self, offset: int) -> bool:
        """Insert an offset; False if the set is full."""
        number = offset >> _PAGE_BITS
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= self._pages_max:
                self.is_full = True
                return False
            page = self._pages[number] = bytearray(_PAGE_BYTES)
        place = offset & _IN_PAGE
        page[place >> 3] |= 1 << (place & 7)
        return True
