"""Globs over event types: `*` stands for any characters, `?` for one; nothing else is special."""

from functools import lru_cache


@lru_cache(maxsize=65_536)
def glob_matches(glob: str, text: str) -> bool:
    """Whether `glob` fits the whole of `text`.

    Takes no longer than the product of their lengths, whatever the glob: a regular expression
    with many stars could take for ever.
    """
    # On a mismatch only the last star has to take one character more: what the stars before it
    # took leaves the most for the rest.
    at = place = 0
    star, taken_to = -1, 0
    while place < len(text):
        letter = glob[at] if at < len(glob) else ""
        if letter == "*":
            star, taken_to = at, place
            at += 1
        elif letter and letter in ("?", text[place]):
            at += 1
            place += 1
        elif star >= 0:
            taken_to += 1
            at, place = star + 1, taken_to
        else:
            return False
    return not glob[at:].strip("*")
