"""Globs of event types: `*` matches any characters, `?` one; there are no other wildcards."""

from functools import lru_cache


@lru_cache(maxsize=65_536)
def glob_matches(glob: str, text: str) -> bool:
    """Whether `glob` matches the whole `text`.

    The time is at most proportional to the product of their lengths; a regular expression with
    many stars can take exponential time.
    """
    # On a mismatch only the last star has to match one more character: the shortest match of the
    # stars before it leaves the most text for the rest.
    glob_index = text_index = 0
    star, star_end = -1, 0
    while text_index < len(text):
        wanted = glob[glob_index] if glob_index < len(glob) else ""
        if wanted == "*":
            star, star_end = glob_index, text_index
            glob_index += 1
        elif wanted and wanted in ("?", text[text_index]):
            glob_index += 1
            text_index += 1
        elif star >= 0:
            star_end += 1
            glob_index, text_index = star + 1, star_end
        else:
            return False
    return not glob[glob_index:].strip("*")
