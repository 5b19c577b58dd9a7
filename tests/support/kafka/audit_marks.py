"""The header of one marked message; producers encode the marks of many at once."""

from logbroker.client.audit_format.mark import Mark, MarkSpan, encode_marks


def encode_mark(mark: Mark) -> bytes:
    """Return the value of the header `audit`."""
    (header,) = encode_marks(
        MarkSpan(mark.producer, mark.window_ms, mark.sequence, mark.sequence + 1)
    )
    return header
