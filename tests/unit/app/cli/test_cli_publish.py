"""The batches of `rewind publish`."""

import io

from hypothesis import given
from hypothesis import strategies as st

from app.cli.publish import BATCH_BYTES, BATCH_LINES, _batches

LINE = st.sampled_from([b"{}", b"", b"  ", b'{"id": "a"}\r', b'{"id": "' + b"b" * 300_000 + b'"}'])


@given(st.lists(LINE, max_size=40))
def test_batches_have_every_event_in_order(lines: list[bytes]) -> None:
    batches = list(_batches(io.BytesIO(b"\n".join(lines))))
    sent = [line for batch in batches for line in batch.split(b"\n")]
    assert sent == [line.rstrip(b"\r") for line in lines if line.strip()]


def test_batches_are_limited_by_size() -> None:
    line = b"x" * 500_000 + b"\n"
    batches = list(_batches(io.BytesIO(line * 50)))
    assert max(map(len, batches)) < BATCH_BYTES + len(line)
    assert sum(batch.count(b"x" * 500_000) for batch in batches) == 50


def test_batches_are_limited_by_number() -> None:
    batches = list(_batches(io.BytesIO(b"{}\n" * (2 * BATCH_LINES + 1))))
    assert [len(batch.split(b"\n")) for batch in batches] == [BATCH_LINES, BATCH_LINES, 1]
