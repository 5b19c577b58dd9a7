import threading
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client import stamper as stamper_module
from logbroker.client.audit_format.mark import TIME_MS_MAX, MarkSpan
from logbroker.client.audit_format.report import AuditRecord, PublishedReport, decode
from logbroker.client.stamper import Stamper
from logbroker.errors import ConfigurationError

MINUTE_MS = 60_000
T0 = 1_763_712_000_000
TOPIC = "clicks"


def events(records: Iterable[AuditRecord]) -> list[PublishedReport]:
    found = []
    for record in records:
        event = decode(record.value)
        assert isinstance(event, PublishedReport)
        assert record.key == event.producer.encode()
        found.append(event)
    return found


def windows(records: Iterable[AuditRecord]) -> list[tuple[int, list[int]]]:
    """Where each window begins, and the sequences that were acknowledged in it."""
    return [(event.window_ms, list(event.sequences)) for event in events(records)]


def stamp(stamper: Stamper, time_ms: int, topic: str = TOPIC) -> MarkSpan:
    return stamper.next_marks(topic, time_ms, 1)


def send(stamper: Stamper, time_ms: int, topic: str = TOPIC) -> MarkSpan:
    span = stamp(stamper, time_ms, topic)
    stamper.record_acknowledged(topic, span)
    return span


def test_messages_are_numbered_by_topic_and_window() -> None:
    stamper = Stamper("api-1")
    marks = [
        stamp(stamper, T0),
        stamp(stamper, T0 + MINUTE_MS - 1),
        stamp(stamper, T0 + MINUTE_MS),
        stamp(stamper, T0 + 5, "views"),
        stamp(stamper, T0 + 1),
    ]
    places = [(mark.window_ms - T0, mark.start) for mark in marks]
    assert places == [(0, 0), (0, 1), (MINUTE_MS, 0), (0, 0), (0, 2)]
    (producer,) = {mark.producer for mark in marks}
    assert producer.startswith("api-1/")


def test_two_runs_of_a_server_have_two_names() -> None:
    assert stamp(Stamper("api-1"), T0).producer != stamp(Stamper("api-1"), T0).producer


def test_a_span_has_consecutive_numbers() -> None:
    stamper = Stamper("api-1")
    first = stamp(stamper, T0)
    span = stamper.next_marks(TOPIC, T0 + 7, 3)
    assert span == MarkSpan(first.producer, T0, 1, 4)
    assert stamp(stamper, T0).start == 4
    stamper.record_acknowledged(TOPIC, span)
    assert windows(stamper.remaining_reports()) == [(T0, [1, 2, 3])]


def test_a_window_is_reported_once_newer_times_make_it_late() -> None:
    stamper = Stamper("api-1", window_ms=MINUTE_MS, lateness_ms=10_000)
    send(stamper, T0)
    send(stamper, T0 + MINUTE_MS + 9_999)
    assert not stamper.due_reports(0.0)
    send(stamper, T0 + MINUTE_MS + 10_000)
    assert windows(stamper.due_reports(0.1)) == [(T0, [0])]
    assert not stamper.due_reports(0.2)


def test_times_of_another_topic_make_no_window_late() -> None:
    stamper = Stamper("api-1", lateness_ms=10_000)
    send(stamper, T0)
    send(stamper, T0 + 10 * MINUTE_MS, "views")
    assert not stamper.due_reports(0.0)


def test_an_unchanged_window_is_reported_by_the_clock() -> None:
    stamper = Stamper("api-1", lateness_ms=10_000)
    send(stamper, T0)
    assert not stamper.due_reports(100.0)
    assert not stamper.due_reports(109.9)
    send(stamper, T0 + 1)
    assert not stamper.due_reports(110.0), "a message came"
    assert windows(stamper.due_reports(120.0)) == [(T0, [0, 1])]


def test_a_window_waits_for_messages_in_flight() -> None:
    stamper = Stamper("api-1", lateness_ms=0)
    late, failing = stamp(stamper, T0), stamp(stamper, T0)
    send(stamper, T0)
    send(stamper, T0 + MINUTE_MS)
    assert windows(stamper.due_reports(0.0)) == [(T0 + MINUTE_MS, [0])]
    stamper.record_acknowledged(TOPIC, late)
    assert not stamper.due_reports(1.0)
    stamper.record_failed(TOPIC, failing)
    assert windows(stamper.due_reports(2.0)) == [(T0, [0, 2])]


def test_failed_messages_are_not_reported() -> None:
    stamper = Stamper("api-1", lateness_ms=0)
    stamper.record_failed(TOPIC, stamp(stamper, T0))
    assert not stamper.due_reports(0.0)
    assert not stamper.remaining_reports()


def test_late_messages_make_their_window_be_reported_again_once_per_lateness() -> None:
    stamper = Stamper("api-1", lateness_ms=10_000)
    send(stamper, T0)
    send(stamper, T0 + 2 * MINUTE_MS)
    assert windows(stamper.due_reports(100.0)) == [(T0, [0])]
    send(stamper, T0 + 1)
    assert not stamper.due_reports(109.9)
    send(stamper, T0 + 2)
    # By then the other window is unchanged for as long.
    assert windows(stamper.due_reports(110.0)) == [(T0, [0, 1, 2]), (T0 + 2 * MINUTE_MS, [0])]


def test_the_remaining_reports_do_not_wait_for_messages_in_flight() -> None:
    stamper = Stamper("api-1", lateness_ms=0)
    send(stamper, T0)
    assert stamper.due_reports(0.0)
    send(stamper, T0 + MINUTE_MS)
    waiting = stamp(stamper, T0 + MINUTE_MS)
    assert windows(stamper.remaining_reports()) == [(T0 + MINUTE_MS, [0])]
    assert not stamper.remaining_reports()
    stamper.record_acknowledged(TOPIC, waiting)
    assert windows(stamper.remaining_reports()) == [(T0 + MINUTE_MS, [0, 1])]


def test_too_many_windows_continue_under_another_name_and_none_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamper_module, "WINDOWS_MAX", 3)
    stamper = Stamper("api-1")
    waiting = send(stamper, T0)._replace(start=1, end=2)
    assert stamp(stamper, T0) == waiting
    marks = [send(stamper, T0 + number * MINUTE_MS) for number in range(1, 8)]
    # A message for a window of an older name is counted under the current name.
    again = send(stamper, T0 + MINUTE_MS)
    names = [mark.producer for mark in [waiting, *marks, again]]
    assert list(Counter(names).values()) == [3, 3, 3]
    # All of past names without messages in flight, and the late one of the current name.
    found = [(each.producer, each.window_ms) for each in events(stamper.due_reports(0.0))]
    assert set(found) == {(mark.producer, mark.window_ms) for mark in [*marks[:5], again]}
    assert len(found) == 6
    stamper.record_acknowledged(TOPIC, waiting)
    assert [(each.producer, each.window_ms) for each in events(stamper.due_reports(0.1))] == [
        (waiting.producer, T0)
    ]
    assert len(stamper.remaining_reports()) == 2


def test_too_large_sets_continue_under_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamper_module, "MEMORY_BYTES_MAX", 1_000)
    stamper = Stamper("api-1")
    names = [send(stamper, T0 + number * MINUTE_MS).producer for number in range(4)]
    assert list(Counter(names).values()) == [2, 2]
    assert len(stamper.remaining_reports()) == 4


def test_a_full_window_continues_under_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamper_module, "SEQUENCE_MAX", 3)
    stamper = Stamper("api-1")
    first = stamper.next_marks(TOPIC, T0, 3)
    second = stamper.next_marks(TOPIC, T0, 2)
    third = [stamp(stamper, T0) for _ in range(3)]
    assert (first.start, first.end) == (0, 3)
    assert (second.start, second.end) == (0, 2)
    assert [mark.start for mark in third] == [2, 3, 0]
    assert len({first.producer, second.producer, third[2].producer}) == 3
    stamper.record_acknowledged(TOPIC, first)
    stamper.record_acknowledged(TOPIC, second)
    for mark in third:
        stamper.record_acknowledged(TOPIC, mark)
    assert [list(each.sequences) for each in events(stamper.remaining_reports())] == [
        [0, 1, 2],
        [0, 1, 2, 3],
        [0],
    ]


def test_threads_get_distinct_numbers_and_all_are_reported() -> None:
    stamper = Stamper("api-1")
    marks: list[MarkSpan] = []

    def work() -> None:
        for _ in range(500):
            marks.append(send(stamper, T0))  # noqa: PERF401  as the others do it meanwhile

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(mark.start for mark in marks) == list(range(2_000))
    assert windows(stamper.remaining_reports()) == [(T0, list(range(2_000)))]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TOPIC, "views"]),
            st.integers(0, 20 * MINUTE_MS),
            st.sampled_from(["acknowledged", "failed", "in flight"]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_all_reports_together_have_exactly_the_acknowledged_messages(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    stamper = Stamper("api-1", lateness_ms=30_000)
    wanted: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    published: list[AuditRecord] = []
    for now_s, (topic, time_ms, fate, is_asked) in enumerate(steps):
        mark = stamp(stamper, T0 + time_ms, topic)
        if fate == "acknowledged":
            stamper.record_acknowledged(topic, mark)
            wanted[topic, mark.producer, mark.window_ms].add(mark.start)
        elif fate == "failed":
            stamper.record_failed(topic, mark)
        if is_asked:
            published += stamper.due_reports(float(now_s))
    published += stamper.remaining_reports()
    found: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    for event in events(published):
        assert event.window_end_ms == event.window_ms + MINUTE_MS
        found[event.topic, event.producer, event.window_ms] |= set(event.sequences)
    assert found == wanted


@pytest.mark.parametrize("time_ms", [-1, TIME_MS_MAX + 1])
def test_a_time_outside_the_range_of_rfc_3339_is_rejected(time_ms: int) -> None:
    with pytest.raises(ValueError, match=str(time_ms)):
        stamp(Stamper("api-1"), time_ms)


def test_the_last_window_ends_with_the_last_time() -> None:
    stamper = Stamper("api-1", window_ms=86_400_000)
    send(stamper, TIME_MS_MAX)
    (event,) = events(stamper.remaining_reports())
    assert event.window_end_ms == TIME_MS_MAX


@pytest.mark.parametrize("server", ["", "s" * 256, "a\nb", "\ud800"])
def test_an_invalid_server_name_is_rejected(server: str) -> None:
    with pytest.raises(ConfigurationError, match="server"):
        Stamper(server)


def test_an_invalid_window_or_lateness_is_rejected() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Stamper("api-1", window_ms=0, lateness_ms=-1)
    assert str(refused.value) == (
        "invalid window: 0 ms; allowed: 1 to 86400000; invalid lateness: -1 ms; allowed: 0 or more"
    )
