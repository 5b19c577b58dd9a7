"""Responses are sent in the order of their requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.wire.response_queue import ResponseQueue


def test_a_complete_response_waits_for_earlier_ones() -> None:
    queue = ResponseQueue()
    first, second, third = queue.add(), queue.add(), queue.add()
    second.complete([b"2"])
    assert queue.pop_complete() == []
    first.complete([b"1a", b"1b"])
    assert queue.pop_complete() == [[b"1a", b"1b"], [b"2"]]
    assert len(queue) == 1
    third.complete([])
    assert queue.pop_complete() == [[]]
    assert not queue


def test_a_response_is_completed_once() -> None:
    response = ResponseQueue().add()
    response.complete([b"1"])
    with pytest.raises(AssertionError):
        response.complete([b"2"])


@given(st.permutations(range(8)), st.integers(1, 3))
def test_responses_are_sent_in_the_order_of_their_requests(order: list[int], every: int) -> None:
    queue = ResponseQueue()
    responses = [queue.add() for _ in order]
    sent = []
    for turn, number in enumerate(order):
        responses[number].complete([bytes((number,))])
        if turn % every == 0:
            sent += queue.pop_complete()
    sent += queue.pop_complete()
    assert sent == [[bytes((number,))] for number in range(8)]
