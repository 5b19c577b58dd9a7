import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import FrameTooLarge
from logbroker.wire.apis import ApiKey
from logbroker.wire.memory_budget import MemoryBudget
from logbroker.wire.receive_buffer import (
    INITIAL_BYTES,
    KEPT_BYTES_MAX,
    OTHER_BYTES_MAX,
    READ_BYTES_MAX,
    SMALL_TURNS_MAX,
    ReceiveBuffer,
)
from tests.support.property_examples import examples

FRAME_BYTES_MAX = 100 * 2**20


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def buffer_of(
    frame_bytes_max: int, *, initial_bytes: int = INITIAL_BYTES, budget: MemoryBudget | None = None
) -> ReceiveBuffer:
    return ReceiveBuffer(
        frame_bytes_max=frame_bytes_max,
        budget=budget or MemoryBudget(2**40),
        initial_bytes=initial_bytes,
    )


def read_into(buffer: ReceiveBuffer, data: bytes) -> bytes:
    """Give the buffer what fits, as a socket would; the rest."""
    space = buffer.free_space()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    buffer.add_received(count)
    return data[count:]


def taken(buffer: ReceiveBuffer) -> list[bytes]:
    return [bytes(buffer.view()[start:end]) for start, end in buffer.pop_frames()]


def received_all(buffer: ReceiveBuffer, data: bytes) -> list[bytes]:
    frames = []
    while data:
        data = read_into(buffer, data)
        frames += taken(buffer)
        buffer.compact()
    return frames


@given(
    st.lists(st.binary(min_size=10, max_size=200), max_size=20),
    st.lists(st.integers(1, 150), min_size=1),
    st.integers(16, 64),
)
def test_frames_are_returned_whole_for_any_split_of_the_bytes(
    bodies: list[bytes], cuts: list[int], initial_bytes: int
) -> None:
    buffer = buffer_of(1000, initial_bytes=initial_bytes)
    stream = b"".join(map(framed, bodies))
    frames: list[bytes] = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)]
        rest = read_into(buffer, stream[:cut])
        stream = rest + stream[cut:]
        frames += taken(buffer)
        if turn % 3 or not len(buffer.free_space()):
            buffer.compact()
        turn += 1
    assert frames == bodies


def test_a_frame_cut_at_any_byte_waits_for_its_rest() -> None:
    whole = framed(b"0123456789") + framed(b"abcdefghij")
    for end in range(len(whole)):
        buffer = buffer_of(1000)
        read_into(buffer, whole[:end])
        first = taken(buffer)
        assert first == ([b"0123456789"] if end >= 14 else [])
        buffer.compact()
        read_into(buffer, whole[end:])
        assert first + taken(buffer) == [b"0123456789", b"abcdefghij"]


def test_frames_are_writable_in_place_and_stay_until_compact() -> None:
    buffer = buffer_of(1000)
    read_into(buffer, framed(b"0123456789"))
    ((start, end),) = buffer.pop_frames()
    assert buffer.pop_frames() == []
    frame = buffer.view()[start:end]
    frame[0:1] = b"X"
    read_into(buffer, framed(b"abcdefghij"))
    assert taken(buffer) == [b"abcdefghij"]
    assert bytes(frame) == b"X123456789"


@pytest.mark.parametrize("size", [-1, 0, 9, 1001, 2**31 - 1, -(2**31)])
def test_a_size_out_of_range_is_rejected(size: int) -> None:
    buffer = buffer_of(1000)
    read_into(buffer, size.to_bytes(4, "big", signed=True))
    with pytest.raises(FrameTooLarge, match=f"frame of {size} bytes; allowed is 10 to 1000"):
        buffer.pop_frames()


def test_a_size_prefix_alone_allocates_no_memory() -> None:
    buffer = buffer_of(FRAME_BYTES_MAX)
    before = len(buffer)
    read_into(buffer, (FRAME_BYTES_MAX).to_bytes(4, "big"))
    assert buffer.pop_frames() == []
    buffer.compact()
    assert len(buffer) == before


@examples(20)
@given(st.integers(100, 300_000), st.integers(200, 50_000))
def test_memory_depends_on_the_received_bytes(size: int, read_bytes: int) -> None:
    buffer = buffer_of(FRAME_BYTES_MAX, initial_bytes=64)
    data = framed(bytes(size))
    come = 0
    while come < len(data):
        count = min(read_bytes, len(buffer.free_space()), len(data) - come)
        read_into(buffer, data[come : come + count])
        come += count
        frames = taken(buffer)
        buffer.compact()
        assert len(buffer) <= max(8 * come, 64)
        assert len(buffer.free_space()) > 0
    assert frames == [bytes(size)]


def test_full_reads_grow_the_buffer_and_small_turns_shrink_it() -> None:
    buffer = buffer_of(FRAME_BYTES_MAX)
    initial = len(buffer)
    stream = framed(bytes(100)) * 30_000
    assert len(received_all(buffer, stream)) == 30_000
    assert len(buffer) == READ_BYTES_MAX
    for _ in range(SMALL_TURNS_MAX):
        assert len(buffer) == READ_BYTES_MAX
        received_all(buffer, framed(bytes(100)))
    assert len(buffer) == initial


@pytest.mark.parametrize("size", [2**20, KEPT_BYTES_MAX - 4])
def test_the_buffer_keeps_its_size_for_usual_batches(size: int) -> None:
    buffer = buffer_of(FRAME_BYTES_MAX)
    assert received_all(buffer, framed(bytes(size))) == [bytes(size)]
    assert len(buffer) == size + 4


def test_the_memory_of_a_huge_frame_is_freed_at_once() -> None:
    buffer = buffer_of(FRAME_BYTES_MAX)
    body = bytes(2) + bytes(range(256)) * 2**14
    assert received_all(buffer, framed(body) + framed(b"0123456789")) == [body, b"0123456789"]
    assert len(buffer) == READ_BYTES_MAX


@given(st.lists(st.binary(min_size=10, max_size=200), min_size=1, max_size=40), st.data())
def test_returned_frames_are_popped_later(bodies: list[bytes], data: st.DataObject) -> None:
    buffer = buffer_of(1000)
    read_into(buffer, b"".join(map(framed, bodies)) + b"\0\0")
    ranges = buffer.pop_frames()
    first = data.draw(st.integers(0, len(bodies) - 1))
    buffer.return_frames(ranges[first][0])
    buffer.compact()
    assert taken(buffer) == bodies[first:]
    buffer.compact()
    assert received_all(buffer, (10).to_bytes(4, "big")[2:] + b"x" * 10) == [b"x" * 10]


def produce_of(size: int) -> bytes:
    """A Produce request of this many bytes, as far as a buffer looks into it."""
    return ApiKey.PRODUCE.to_bytes(2, "big") + bytes(size - 2)


@pytest.mark.parametrize("api_key", [each for each in ApiKey if each is not ApiKey.PRODUCE])
def test_only_produce_requests_may_be_large(api_key: ApiKey) -> None:
    buffer = buffer_of(FRAME_BYTES_MAX)
    size = OTHER_BYTES_MAX + 1
    read_into(buffer, size.to_bytes(4, "big"))
    assert buffer.pop_frames() == [], "the API is not known yet"
    read_into(buffer, api_key.to_bytes(2, "big"))
    with pytest.raises(FrameTooLarge, match=f"allowed is 10 to {OTHER_BYTES_MAX}"):
        buffer.pop_frames()


def test_a_frame_waits_for_memory_of_the_budget() -> None:
    budget = MemoryBudget(3 * 2**20)
    first, second = (buffer_of(FRAME_BYTES_MAX, budget=budget) for _ in range(2))
    body = produce_of(2 * 2**20)
    stream = framed(body)
    assert received_all(first, stream[:-1]) == []
    rest = stream
    while not second.is_starved:
        rest = read_into(second, rest)
        assert taken(second) == []
        second.compact()
    assert budget.bytes_taken <= budget.bytes_max
    assert len(second.free_space()) == 0
    assert received_all(first, stream[-1:] + framed(b"0123456789")) == [body, b"0123456789"]
    first.release()
    second.compact()
    assert not second.is_starved
    assert received_all(second, rest) == [body]
    second.release()
    assert budget.bytes_taken == 0


def test_without_memory_small_frames_are_received_all_the_same() -> None:
    buffer = buffer_of(FRAME_BYTES_MAX, budget=MemoryBudget(0))
    stream = framed(bytes(100)) * 3_000
    assert len(received_all(buffer, stream)) == 3_000
    assert not buffer.is_starved
    assert len(buffer) == INITIAL_BYTES


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(10, 5_000)), max_size=30))
def test_the_budget_knows_what_all_buffers_hold(turns: list[tuple[int, int]]) -> None:
    budget = MemoryBudget(4_000)
    buffers = [buffer_of(10_000, initial_bytes=64, budget=budget) for _ in range(3)]
    for number, size in turns:
        buffer = buffers[number]
        read_into(buffer, framed(bytes(size)))
        buffer.pop_frames()
        buffer.compact()
        assert budget.bytes_taken == sum(len(each) - 64 for each in buffers) <= 4_000
