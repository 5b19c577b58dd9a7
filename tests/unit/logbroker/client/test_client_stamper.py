import threading
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client import stamper as stamper_module
from logbroker.client.audit_event import AuditRecord, Published, decode
from logbroker.client.audit_mark import TIME_MS_MAX, Mark, MarkSpan
from logbroker.client.stamper import Stamper
from logbroker.errors import ConfigurationError

MINUTE_MS = 60_000
T0 = 1_763_712_000_000
TOPIC = "clicks"


def events(records: Iterable[AuditRecord]) -> list[Published]:
    found = []
    for record in records:
        event = decode(record.value)
        assert isinstance(event, Published)
        assert record.key == event.producer.encode()
        found.append(event)
    return found


def windows(records: Iterable[AuditRecord]) -> list[tuple[int, list[int]]]:
    """Where each window begins, and the sequences that were acknowledged in it."""
    return [(event.window_ms, list(event.sequences)) for event in events(records)]


def send(stamper: Stamper, time_ms: int, topic: str = TOPIC) -> Mark:
    mark = stamper.stamp(topic, time_ms)
    stamper.acknowledged(topic, mark)
    return mark


def test_messages_are_numbered_by_topic_and_window() -> None:
    stamper = Stamper("api-1")
    marks = [
        stamper.stamp(TOPIC, T0),
        stamper.stamp(TOPIC, T0 + MINUTE_MS - 1),
        stamper.stamp(TOPIC, T0 + MINUTE_MS),
        stamper.stamp("views", T0 + 5),
        stamper.stamp(TOPIC, T0 + 1),
    ]
    places = [(mark.window_ms - T0, mark.sequence) for mark in marks]
    assert places == [(0, 0), (0, 1), (MINUTE_MS, 0), (0, 0), (0, 2)]
    (producer,) = {mark.producer for mark in marks}
    assert producer.startswith("api-1/")


def test_two_runs_of_a_server_have_two_names() -> None:
    assert Stamper("api-1").stamp(TOPIC, T0).producer != Stamper("api-1").stamp(TOPIC, T0).producer


def test_a_span_is_numbered_as_its_messages_one_by_one() -> None:
    stamper = Stamper("api-1")
    first = stamper.stamp(TOPIC, T0)
    span = stamper.stamp_span(TOPIC, T0 + 7, 3)
    assert span == MarkSpan(first.producer, T0, 1, 4)
    assert stamper.stamp(TOPIC, T0).sequence == 4
    stamper.span_acknowledged(TOPIC, span)
    assert windows(stamper.rest()) == [(T0, [1, 2, 3])]


def test_a_window_is_published_once_newer_times_leave_it_late() -> None:
    stamper = Stamper("api-1", window_ms=MINUTE_MS, lateness_ms=10_000)
    send(stamper, T0)
    send(stamper, T0 + MINUTE_MS + 9_999)
    assert not stamper.due(0.0)
    send(stamper, T0 + MINUTE_MS + 10_000)
    assert windows(stamper.due(0.1)) == [(T0, [0])]
    assert not stamper.due(0.2)


def test_another_topic_leaves_no_window_late() -> None:
    stamper = Stamper("api-1", lateness_ms=10_000)
    send(stamper, T0)
    send(stamper, T0 + 10 * MINUTE_MS, "views")
    assert not stamper.due(0.0)


def test_a_window_that_nobody_touches_is_published_by_the_clock() -> None:
    stamper = Stamper("api-1", lateness_ms=10_000)
    send(stamper, T0)
    assert not stamper.due(100.0)
    assert not stamper.due(109.9)
    send(stamper, T0 + 1)
    assert not stamper.due(110.0), "it was touched"
    assert windows(stamper.due(120.0)) == [(T0, [0, 1])]


def test_a_window_waits_for_what_is_under_way() -> None:
    stamper = Stamper("api-1", lateness_ms=0)
    late, failing = stamper.stamp(TOPIC, T0), stamper.stamp(TOPIC, T0)
    send(stamper, T0)
    send(stamper, T0 + MINUTE_MS)
    assert windows(stamper.due(0.0)) == [(T0 + MINUTE_MS, [0])]
    stamper.acknowledged(TOPIC, late)
    assert not stamper.due(1.0)
    stamper.failed(TOPIC, failing)
    assert windows(stamper.due(2.0)) == [(T0, [0, 2])]


def test_what_failed_is_not_published_nor_a_window_in_which_all_did() -> None:
    stamper = Stamper("api-1", lateness_ms=0)
    stamper.failed(TOPIC, stamper.stamp(TOPIC, T0))
    assert not stamper.due(0.0)
    assert not stamper.rest()


def test_a_late_message_has_all_of_its_window_published_again_but_not_each_at_once() -> None:
    stamper = Stamper("api-1", lateness_ms=10_000)
    send(stamper, T0)
    send(stamper, T0 + 2 * MINUTE_MS)
    assert windows(stamper.due(100.0)) == [(T0, [0])]
    send(stamper, T0 + 1)
    assert not stamper.due(109.9)
    send(stamper, T0 + 2)
    # By then nobody has touched the other window for as long.
    assert windows(stamper.due(110.0)) == [(T0, [0, 1, 2]), (T0 + 2 * MINUTE_MS, [0])]


def test_the_rest_is_everything_that_is_not_published_whatever_is_under_way() -> None:
    stamper = Stamper("api-1", lateness_ms=0)
    send(stamper, T0)
    assert stamper.due(0.0)
    send(stamper, T0 + MINUTE_MS)
    waiting = stamper.stamp(TOPIC, T0 + MINUTE_MS)
    assert windows(stamper.rest()) == [(T0 + MINUTE_MS, [0])]
    assert not stamper.rest()
    stamper.acknowledged(TOPIC, waiting)
    assert windows(stamper.rest()) == [(T0 + MINUTE_MS, [0, 1])]


def test_too_many_windows_go_on_under_another_name_and_none_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamper_module, "WINDOWS_MAX", 3)
    stamper = Stamper("api-1")
    waiting = send(stamper, T0)._replace(sequence=1)
    assert stamper.stamp(TOPIC, T0) == waiting
    marks = [send(stamper, T0 + number * MINUTE_MS) for number in range(1, 8)]
    # One that was sent to an older name's window is counted by the present name.
    again = send(stamper, T0 + MINUTE_MS)
    names = [mark.producer for mark in [waiting, *marks, again]]
    assert list(Counter(names).values()) == [3, 3, 3]
    # Those of past names, but the one with a message under way, and the late one of the present.
    found = [(each.producer, each.window_ms) for each in events(stamper.due(0.0))]
    assert set(found) == {(mark.producer, mark.window_ms) for mark in [*marks[:5], again]}
    assert len(found) == 6
    stamper.acknowledged(TOPIC, waiting)
    assert [(each.producer, each.window_ms) for each in events(stamper.due(0.1))] == [
        (waiting.producer, T0)
    ]
    assert len(stamper.rest()) == 2


def test_sets_that_take_too_much_go_on_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamper_module, "KEPT_BYTES_MAX", 1_000)
    stamper = Stamper("api-1")
    names = [send(stamper, T0 + number * MINUTE_MS).producer for number in range(4)]
    assert list(Counter(names).values()) == [2, 2]
    assert len(stamper.rest()) == 4


def test_a_window_with_all_sequences_goes_on_under_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamper_module, "SEQUENCE_MAX", 3)
    stamper = Stamper("api-1")
    first = stamper.stamp_span(TOPIC, T0, 3)
    second = stamper.stamp_span(TOPIC, T0, 2)
    third = [stamper.stamp(TOPIC, T0) for _ in range(3)]
    assert (first.start, first.end) == (0, 3)
    assert (second.start, second.end) == (0, 2)
    assert [mark.sequence for mark in third] == [2, 3, 0]
    assert len({first.producer, second.producer, third[2].producer}) == 3
    stamper.span_acknowledged(TOPIC, first)
    stamper.span_acknowledged(TOPIC, second)
    for mark in third:
        stamper.acknowledged(TOPIC, mark)
    assert [list(each.sequences) for each in events(stamper.rest())] == [
        [0, 1, 2],
        [0, 1, 2, 3],
        [0],
    ]


def test_threads_get_each_number_once_and_all_of_them_are_published() -> None:
    stamper = Stamper("api-1")
    marks: list[Mark] = []

    def work() -> None:
        for _ in range(500):
            marks.append(send(stamper, T0))  # noqa: PERF401  as the others do it meanwhile

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(mark.sequence for mark in marks) == list(range(2_000))
    assert windows(stamper.rest()) == [(T0, list(range(2_000)))]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TOPIC, "views"]),
            st.integers(0, 20 * MINUTE_MS),
            st.sampled_from(["acknowledged", "failed", "under way"]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_whenever_it_is_asked_what_it_publishes_unites_to_what_was_acknowledged(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    stamper = Stamper("api-1", lateness_ms=30_000)
    wanted: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    published: list[AuditRecord] = []
    for now_s, (topic, time_ms, fate, is_asked) in enumerate(steps):
        mark = stamper.stamp(topic, T0 + time_ms)
        if fate == "acknowledged":
            stamper.acknowledged(topic, mark)
            wanted[topic, mark.producer, mark.window_ms].add(mark.sequence)
        elif fate == "failed":
            stamper.failed(topic, mark)
        if is_asked:
            published += stamper.due(float(now_s))
    published += stamper.rest()
    found: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    for event in events(published):
        assert event.window_end_ms == event.window_ms + MINUTE_MS
        found[event.topic, event.producer, event.window_ms] |= set(event.sequences)
    assert found == wanted


@pytest.mark.parametrize("time_ms", [-1, TIME_MS_MAX + 1])
def test_a_time_that_no_text_can_tell_is_refused(time_ms: int) -> None:
    with pytest.raises(ValueError, match=str(time_ms)):
        Stamper("api-1").stamp(TOPIC, time_ms)


def test_the_last_window_of_all_ends_with_the_time() -> None:
    stamper = Stamper("api-1", window_ms=86_400_000)
    send(stamper, TIME_MS_MAX)
    (event,) = events(stamper.rest())
    assert event.window_end_ms == TIME_MS_MAX


@pytest.mark.parametrize("server", ["", "s" * 256, "a\nb", "\ud800"])
def test_a_server_has_a_name_that_can_be_told(server: str) -> None:
    with pytest.raises(ConfigurationError, match="server"):
        Stamper(server)


def test_a_window_and_its_lateness_have_their_bounds() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Stamper("api-1", window_ms=0, lateness_ms=-1)
    assert str(refused.value) == (
        "a window has 0 ms; allowed are 1 to 86400000; the lateness is -1 ms; it cannot be below 0"
    )
