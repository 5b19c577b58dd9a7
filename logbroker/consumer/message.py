"""A message as a consumer gets it."""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """One message, and where it lies; `timestamp_ms` is -1 where the log has none for it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
