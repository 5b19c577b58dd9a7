"""Whether two globs can match the same text."""


def globs_overlap(one: str, other: str) -> bool:
    """Whether a text exists that both globs match; `*` is any characters, `?` one.

    The time is at most proportional to the product of their lengths.
    """
    if "*" in one and "*" in other:
        # The text may have the longer of both beginnings, then all parts between the stars of one
        # glob and of the other, then the longer of both ends: only beginnings and ends can differ.
        return _agree(_beginning(one), _beginning(other)) and _agree(_end(one), _end(other))
    return _matches(one, other) if "*" in one else _matches(other, one)


def _beginning(glob: str) -> str:
    return glob.partition("*")[0]


def _end(glob: str) -> str:
    return glob.rpartition("*")[2][::-1]


def _agree(one: str, other: str) -> bool:
    """Whether the characters that both have are compatible."""
    return all(map(_is_compatible, one, other))


def _is_compatible(one: str, other: str) -> bool:
    return one == other or "?" in (one, other)


def _matches(glob: str, text: str) -> bool:
    """Whether `glob` matches a text that `text` describes; a `?` in it is any character."""
    # As `globs.glob_matches`: after a mismatch only the last star has to match one more character.
    glob_index = text_index = 0
    star, star_end = -1, 0
    while text_index < len(text):
        wanted = glob[glob_index] if glob_index < len(glob) else ""
        if wanted == "*":
            star, star_end = glob_index, text_index
            glob_index += 1
        elif wanted and _is_compatible(wanted, text[text_index]):
            glob_index += 1
            text_index += 1
        elif star >= 0:
            star_end += 1
            glob_index, text_index = star + 1, star_end
        else:
            return False
    return not glob[glob_index:].strip("*")
