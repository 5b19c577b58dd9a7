"""Text of strangers on a terminal."""


def printable(text: str) -> str:
    """`text` with a mark for what a terminal would take for a command, a new line included."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
