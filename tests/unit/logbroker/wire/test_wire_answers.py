import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.wire.answers import AnswerQueue


def test_an_answer_that_is_ready_waits_for_those_before_it() -> None:
    queue = AnswerQueue()
    first, second, third = queue.open(), queue.open(), queue.open()
    second.fill([b"2"])
    assert queue.take_ready() == []
    first.fill([b"1a", b"1b"])
    assert queue.take_ready() == [[b"1a", b"1b"], [b"2"]]
    assert len(queue) == 1
    assert not queue.is_empty
    third.fill([])
    assert queue.take_ready() == [[]]
    assert queue.is_empty


def test_a_slot_is_filled_once() -> None:
    slot = AnswerQueue().open()
    slot.fill([b"1"])
    with pytest.raises(AssertionError):
        slot.fill([b"2"])


@given(st.permutations(range(8)), st.integers(1, 3))
def test_answers_leave_in_the_order_of_their_requests(order: list[int], every: int) -> None:
    queue = AnswerQueue()
    slots = [queue.open() for _ in order]
    left = []
    for turn, number in enumerate(order):
        slots[number].fill([bytes((number,))])
        if turn % every == 0:
            left += queue.take_ready()
    left += queue.take_ready()
    assert left == [[bytes((number,))] for number in range(8)]
