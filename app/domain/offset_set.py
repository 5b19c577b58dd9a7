"""Many offsets of one partition, in little memory."""

from typing import Final

_PAGE_BITS: Final = 11
_PAGE_BYTES: Final = 2**_PAGE_BITS // 8
_IN_PAGE: Final = 2**_PAGE_BITS - 1

PAGES_MAX: Final = 100_000
"""Some 40 MB: two hundred million offsets side by side."""


class OffsetSet:
    """A bitmap in pages of 2,048 offsets, made when one of them is first added."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages: dict[int, bytearray] = {}
        self._pages_max = pages_max
        self.is_full = False
        """Whether an offset was not taken, for want of room."""

    def __contains__(self, offset: int) -> bool:
        page = self._pages.get(offset >> _PAGE_BITS)
        if page is None:
            return False
        place = offset & _IN_PAGE
        return bool(page[place >> 3] >> (place & 7) & 1)

    def add(self, offset: int) -> bool:
        """Take in an offset; False when there is no room for it."""
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
