"""Where in the partitions of a topic a page begins, and where the pages beside it do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.log.browser.question import PARTITIONS_MAX, BrowseQuestion, Cursor, Order, read_cursor
from app.log.browser.walks import Ascent, Descent, Walk
from app.log.errors import BrowseRefused
from app.log.group_position import Bounds
from app.log.inspection.deadline import Deadline
from app.log.inspection.gaps import Gaps
from app.log.inspection.questions import EARLIEST, LATEST, LogQuestions, Place, found, since

MESSAGES: Final = "messages"

_AT_ONCE_LEAST: Final = 8
"""Records of one of several partitions in the first read."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """A page begins at `offsets` and goes up, or below them and goes down, within `bounds`.

    `out_of_reach` are offsets of a cursor in partitions that cannot be read at present: the cursors
    of the page keep them.
    """

    order: Order
    is_upward: bool
    bounds: Mapping[int, Bounds]
    offsets: Mapping[int, int]
    out_of_reach: Mapping[int, int]

    @property
    def is_reversed(self) -> bool:
        """Whether what is read last is to be shown first: one goes back in the order."""
        return self.is_upward != (self.order is Order.OLDEST)

    def walks(self, limit: int) -> dict[int, Walk]:
        """The ways from here, by partition."""
        at_once = max(_AT_ONCE_LEAST, -(-limit // max(1, len(self.offsets))))
        return {
            partition: Ascent(offset, self.bounds[partition].high, at_once)
            if self.is_upward
            else Descent(self.bounds[partition].low, offset, at_once)
            for partition, offset in self.offsets.items()
        }

    def cursors(self, walks: Mapping[int, Walk]) -> tuple[str | None, str | None]:
        """Of the next page in the order, and of the one before, once the walks were taken."""
        positions = {partition: walk.position for partition, walk in walks.items()}
        is_more = any(not walk.is_over for walk in walks.values()) or bool(self.out_of_reach)
        onward = self._cursor(positions, is_upward=self.is_upward) if is_more else None
        is_more = any(
            offset > self.bounds[partition].low
            if self.is_upward
            else offset < self.bounds[partition].high
            for partition, offset in self.offsets.items()
        )
        back = self._cursor(self.offsets, is_upward=not self.is_upward) if is_more else None
        return (back, onward) if self.is_reversed else (onward, back)

    def _cursor(self, offsets: Mapping[int, int], *, is_upward: bool) -> str:
        return Cursor(self.order, is_upward, {**self.out_of_reach, **offsets}).text


def find_entrance(
    questions: LogQuestions, question: BrowseQuestion, deadline: Deadline, gaps: Gaps
) -> Entrance:
    """Where the page that is asked for begins.

    Raises:
        BrowseRefused: the topic has no such partition, or it no such offset.
        NotInLog, LogUnavailable
    """
    topic = questions.topic(question.topic, deadline)
    if topic.error is not None:
        gaps.note(MESSAGES, topic.error.str())
    cursor = None if question.cursor is None else read_cursor(question.cursor)
    numbers = _partitions(question, cursor, sorted(topic.partitions))
    led = [(question.topic, each) for each in numbers if topic.partitions[each].leader >= 0]
    for number in numbers:
        if topic.partitions[number].leader < 0:
            gaps.note(MESSAGES, f"partition {number} has no leader")
    bounds = _bounds(questions, led, deadline, gaps)
    wanted = _wanted(questions, question, cursor, bounds, deadline, gaps)
    return Entrance(
        order=question.order if cursor is None else cursor.order,
        is_upward=question.order is Order.OLDEST if cursor is None else cursor.is_upward,
        bounds=bounds,
        # What a cursor names may be deleted by now, or of a log that was made anew.
        offsets={
            number: min(max(wanted[number], low), high) for number, (low, high) in bounds.items()
        },
        out_of_reach={
            number: offset
            for number, offset in (() if cursor is None else cursor.offsets.items())
            if number not in bounds
        },
    )


def _partitions(question: BrowseQuestion, cursor: Cursor | None, there: list[int]) -> list[int]:
    known = f"0 to {len(there) - 1}, the partitions of topic {question.topic!r}"
    if cursor is not None:
        unknown = sorted(cursor.offsets.keys() - set(there))
        if unknown:
            raise BrowseRefused("cursor", question.cursor, f"one with partitions {known}")
        return sorted(cursor.offsets)
    if question.partition is None:
        if len(there) > PARTITIONS_MAX:
            allowed = f"one of {known}: up to {PARTITIONS_MAX} are read together"
            raise BrowseRefused("partition", None, allowed)
        return there
    if question.partition not in there:
        raise BrowseRefused("partition", question.partition, known)
    return [question.partition]


def _bounds(
    questions: LogQuestions, led: list[Place], deadline: Deadline, gaps: Gaps
) -> dict[int, Bounds]:
    lows = questions.offsets(led, EARLIEST, deadline)
    highs = questions.offsets(led, LATEST, deadline, is_committed=True)
    low_of, high_of = (found(each, MESSAGES, deadline, gaps) for each in (lows, highs))
    return {
        place[1]: Bounds(low_of[place].offset, max(low_of[place].offset, high_of[place].offset))
        for place in led
        if place in low_of and place in high_of
    }


def _wanted(
    questions: LogQuestions,
    question: BrowseQuestion,
    cursor: Cursor | None,
    bounds: Mapping[int, Bounds],
    deadline: Deadline,
    gaps: Gaps,
) -> Mapping[int, int]:
    """The offset that each partition is entered at; it may lie out of bounds."""
    if cursor is not None:
        return cursor.offsets
    if question.offset is not None:
        for number, held in bounds.items():
            _check_offset(number, question.offset, held)
        # Going down from a message, it is the first.
        first = question.offset + (question.order is Order.NEWEST)
        return dict.fromkeys(bounds, first)
    if question.time_ms is not None:
        places = [(question.topic, number) for number in bounds]
        spec = since(max(0, question.time_ms))
        at = found(questions.offsets(places, spec, deadline), MESSAGES, deadline, gaps)
        # Without a record as young, and without an answer, which a gap tells of: the end.
        return {
            number: at[question.topic, number].offset
            if (question.topic, number) in at and at[question.topic, number].offset >= 0
            else held.high
            for number, held in bounds.items()
        }
    is_oldest = question.order is Order.OLDEST
    return {number: held.low if is_oldest else held.high for number, held in bounds.items()}


def _check_offset(partition: int, offset: int, held: Bounds) -> None:
    if held.low <= offset < held.high:
        return
    if held.low == held.high:
        allowed = f"none: partition {partition} holds nothing below its end, {held.high}"
    else:
        allowed = f"{held.low} to {held.high - 1}, which partition {partition} holds"
    raise BrowseRefused("offset", offset, allowed)
