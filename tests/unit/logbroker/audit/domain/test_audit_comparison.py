from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.audit.domain import comparison as comparison_module
from logbroker.audit.domain.comparison import (
    Comparison,
    ComparisonTooLarge,
    ReportDeadline,
    Row,
    Scope,
    Status,
)
from logbroker.client.audit_format.report import PublishedReport, ReceivedCount, ReceivedReport
from logbroker.client.audit_format.sequence_set import SequenceSet

MINUTE_MS = 60_000
T0 = 1_763_712_000_000
NOW_MS = T0 + 60 * MINUTE_MS
LATE = ReportDeadline(NOW_MS, 0)
PATIENT = ReportDeadline(NOW_MS, MINUTE_MS)
ALL = Scope(0, NOW_MS)


def published(
    sequences: Iterable[int],
    *,
    topic: str = "clicks",
    producer: str = "web/1",
    window_ms: int = T0,
) -> PublishedReport:
    return PublishedReport(
        topic, producer, window_ms, window_ms + MINUTE_MS, SequenceSet(sequences)
    )


def received(
    sequences: Sequence[int],
    *,
    tier: str = "readers",
    topic: str = "clicks",
    producer: str = "web/1",
    window_ms: int = T0,
) -> ReceivedReport:
    receipt = ReceivedCount(topic, producer, window_ms, len(sequences), SequenceSet(sequences))
    return ReceivedReport(tier, "one", window_ms, (receipt,))


def compared(
    *events: PublishedReport | ReceivedReport,
    scope: Scope = ALL,
    deadline: ReportDeadline = LATE,
    tiers: Sequence[str] = (),
    reported_ms: int = T0,
) -> list[Row]:
    comparison = Comparison(scope)
    for event in events:
        add(comparison, event, reported_ms)
    return list(comparison.rows(deadline, tiers))


def add(
    comparison: Comparison, event: PublishedReport | ReceivedReport, reported_ms: int = T0
) -> None:
    if isinstance(event, PublishedReport):
        comparison.add_published(event, reported_ms)
    else:
        comparison.add_received(event, reported_ms)


def counts(row: Row) -> tuple[int, int, int, int, int]:
    """Published, received, missing, duplicated, uncovered."""
    return row.published, row.received, row.missing, row.duplicated, row.uncovered


def test_a_row_counts_by_which_messages_came_and_not_by_how_many() -> None:
    # Five of five were received, but two are missing, one repeated and one unknown.
    (row,) = compared(published(range(5)), received([0, 0, 1, 2, 9]))
    assert counts(row) == (5, 4, 2, 1, 1)
    assert (row.status, row.missing_ranges) == (Status.MISSING, ((3, 5),))
    assert (row.window_ms, row.window_end_ms) == (T0, T0 + MINUTE_MS)


def test_events_are_united_in_whatever_order_they_come() -> None:
    events: list[PublishedReport | ReceivedReport] = [
        published([0, 1]),
        published([0, 1, 2, 3]),
        received([0, 2]),
        received([2, 3]),
    ]
    reports = [compared(*order) for order in permutations(events)]
    assert all(report == reports[0] for report in reports)
    assert counts(reports[0][0]) == (4, 3, 1, 1, 0)


def test_each_topic_window_producer_and_tier_has_a_row_of_its_own() -> None:
    later = T0 + MINUTE_MS
    rows = compared(
        published([0], topic="b"),
        published([0], window_ms=later),
        published([0], producer="web/2"),
        published([0]),
        *(received([0], topic="b", tier=tier) for tier in ("x", "readers")),
        *(received([0], producer=name) for name in ("web/1", "web/2")),
        received([0], window_ms=later),
    )
    assert [(row.topic, row.window_ms, row.producer, row.tier) for row in rows] == [
        ("b", T0, "web/1", "readers"),
        ("b", T0, "web/1", "x"),
        ("clicks", T0, "web/1", "readers"),
        ("clicks", T0, "web/2", "readers"),
        ("clicks", later, "web/1", "readers"),
    ]


def test_a_tier_is_expected_from_its_first_reported_window() -> None:
    windows = [T0, T0 + MINUTE_MS, T0 + 2 * MINUTE_MS]
    rows = compared(
        *(published([0, 1], window_ms=window_ms) for window_ms in windows),
        received([0, 1], window_ms=windows[1]),
    )
    assert [(row.window_ms, row.tier, row.missing) for row in rows] == [
        (windows[0], None, 0),
        (windows[1], "readers", 0),
        (windows[2], "readers", 2),
    ]
    assert rows[0].status is Status.UNREAD


def test_a_tier_that_reported_before_the_scope_is_expected_within_it() -> None:
    later = T0 + MINUTE_MS
    (row,) = compared(
        received([0]),
        published([0]),
        published([0, 1], window_ms=later),
        scope=Scope(later, NOW_MS),
    )
    assert (row.window_ms, row.tier, row.missing) == (later, "readers", 2)


def test_a_named_tier_is_expected_without_any_report() -> None:
    (row,) = compared(published([0, 1]), tiers=("silent",))
    assert (row.tier, row.status, counts(row)) == ("silent", Status.MISSING, (2, 0, 2, 0, 0))


def test_a_named_tier_is_expected_from_the_beginning() -> None:
    later = T0 + MINUTE_MS
    events = published([0]), published([0], window_ms=later), received([0], window_ms=later)
    assert [row.missing for row in compared(*events, tiers=("readers",))] == [1, 0]


def test_a_tier_that_reads_nothing_of_an_origin_is_not_expected_to_read_it() -> None:
    comparison = Comparison(ALL)
    comparison.add_published(published([0], producer="here/1"), T0)
    comparison.add_published(published([0], producer="there/1"), T0, "there")
    comparison.add_received(received([0], producer="here/1", tier="local"), T0)
    for producer in ("here/1", "there/1"):
        comparison.add_received(received([0], producer=producer, tier="both"), T0)
    comparison.add_published(published([0, 1], producer="there/2"), T0, "there")
    for tiers in ((), ("local",)):
        rows = list(comparison.rows(LATE, tiers))
        assert [(row.producer, row.tier, row.missing) for row in rows] == [
            ("here/1", "both", 0),
            ("here/1", "local", 0),
            ("there/1", "both", 0),
            ("there/2", "both", 2),
        ]


def test_a_mirror_of_an_idle_data_centre_is_not_expected_to_copy_another() -> None:
    comparison = Comparison(ALL)
    comparison.add_published(published([0], producer="here/1"), T0)
    named = ("mirror@here", "mirror@there")
    rows = comparison.rows(LATE, named)
    assert [(row.tier, row.missing) for row in rows] == [(tier, 1) for tier in named]
    comparison.add_received(received([0], producer="here/1", tier="mirror@here"), T0)
    rows = comparison.rows(LATE, (*named, "silent"))
    assert [(row.tier, row.missing) for row in rows] == [("mirror@here", 0), ("silent", 1)]


def test_received_messages_without_a_published_report_are_uncovered() -> None:
    (row,) = compared(received([0, 1]))
    assert (row.status, row.window_end_ms, counts(row)) == (
        Status.UNCOVERED,
        None,
        (0, 2, 0, 0, 2),
    )


def test_a_loss_is_worse_than_something_uncovered() -> None:
    (row,) = compared(published([0, 1]), received([1, 2]))
    assert row.status is Status.MISSING


@pytest.mark.parametrize(
    ("age_ms", "status"),
    [
        (0, Status.PENDING),
        (MINUTE_MS - 1, Status.PENDING),
        (MINUTE_MS, Status.MISSING),
        # Somewhat ahead: two clocks. Far ahead: nothing to wait for.
        (-MINUTE_MS, Status.PENDING),
        (-MINUTE_MS - 1, Status.MISSING),
    ],
)
def test_what_was_published_just_now_may_still_be_received(age_ms: int, status: Status) -> None:
    events = published([0, 1]), received([0])
    (row,) = compared(*events, deadline=PATIENT, reported_ms=NOW_MS - age_ms)
    assert (row.status, row.missing) == (status, 1)


@pytest.mark.parametrize(
    ("window_ms", "reported_ms", "status"),
    [
        # Reported a while ago, but the window has just ended.
        (NOW_MS - 3 * MINUTE_MS + 1, T0, Status.PENDING),
        (NOW_MS - 3 * MINUTE_MS, T0, Status.UNCOVERED),
        # An old window, which a consumer has just reported.
        (T0, NOW_MS - 2 * MINUTE_MS + 1, Status.PENDING),
        (T0, NOW_MS - 2 * MINUTE_MS, Status.UNCOVERED),
        (T0, NOW_MS + 2 * MINUTE_MS, Status.UNCOVERED),
    ],
)
def test_what_was_received_just_now_may_still_be_covered(
    window_ms: int, reported_ms: int, status: Status
) -> None:
    (row,) = compared(received([0], window_ms=window_ms), deadline=PATIENT, reported_ms=reported_ms)
    assert (row.status, row.uncovered) == (status, 1)


def test_only_windows_that_begin_in_the_scope_and_its_topics_are_compared() -> None:
    start, end = T0 + MINUTE_MS, T0 + 3 * MINUTE_MS
    windows = range(T0, T0 + 5 * MINUTE_MS, MINUTE_MS)
    events = [
        published([0], topic=topic, window_ms=window_ms)
        for topic in ("clicks", "other")
        for window_ms in windows
    ]
    rows = compared(*events, scope=Scope(start, end, frozenset({"clicks"})))
    assert [(row.topic, row.window_ms) for row in rows] == [
        ("clicks", start),
        ("clicks", start + MINUTE_MS),
    ]


def test_only_the_first_ranges_that_are_missing_are_named() -> None:
    (row,) = compared(published(range(1_000)), received(range(1, 1_000, 2)))
    assert row.missing == 500
    assert row.missing_ranges == tuple((n, n + 1) for n in range(0, 20, 2))


def test_more_sets_than_memory_is_meant_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two sets, and one origin and one reader of the producer.
    monkeypatch.setattr(comparison_module, "ENTRIES_MAX", 4)
    comparison = Comparison(ALL)
    add(comparison, published([0]))
    add(comparison, received([0]))
    add(comparison, received([1]))
    with pytest.raises(ComparisonTooLarge, match="too many sets"):
        add(comparison, received([0], window_ms=T0 + MINUTE_MS))


@pytest.mark.parametrize("event", [published, received])
def test_windows_that_are_not_compared_take_no_more_memory_than_those_that_are(
    event: Callable[..., PublishedReport | ReceivedReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_module, "ENTRIES_MAX", 2)
    comparison = Comparison(Scope(T0 + MINUTE_MS, NOW_MS))
    for producer in ("web/1", "web/2", "web/1"):
        add(comparison, event([0], producer=producer))
    with pytest.raises(ComparisonTooLarge, match="too many sets"):
        add(comparison, event([0], producer="web/3"))


sequences = st.lists(st.integers(0, 20_000), max_size=30)


@given(
    reports=st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), sequences), max_size=30),
    bytes_max=st.sampled_from([0, 2_000, 2**30]),
)
def test_it_counts_as_sets_do_however_little_is_kept_unpacked(
    reports: list[tuple[str, bool, list[int]]], bytes_max: int
) -> None:
    comparison = Comparison(ALL, bytes_max)
    sent: dict[str, set[int]] = {}
    got: dict[str, list[int]] = {}
    for producer, is_published, numbers in reports:
        if is_published:
            add(comparison, published(numbers, producer=producer))
            sent.setdefault(producer, set()).update(numbers)
        else:
            add(comparison, received(numbers, producer=producer))
            got.setdefault(producer, []).extend(numbers)
    for row in comparison.rows(LATE, ("readers",)):
        wanted, came = sent.get(row.producer, set()), got.get(row.producer, [])
        assert counts(row) == (
            len(wanted),
            len(set(came)),
            len(wanted - set(came)),
            len(came) - len(set(came)),
            len(set(came) - wanted),
        )
