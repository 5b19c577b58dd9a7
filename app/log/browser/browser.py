"""Looks through the messages of a topic, for pages of operators and for the API."""

import threading
from typing import Final

from app.config import Settings
from app.log.browser.entrance import find_entrance
from app.log.browser.gathering import Gathering
from app.log.browser.message import MessagePage, PartitionSpan, message_of
from app.log.browser.question import BrowseQuestion, check_question
from app.log.browser.record_reader import RecordReader
from app.log.browser.schema_reader import SchemaReader
from app.log.errors import InspectionsBusy
from app.log.inspection.deadline import Deadline
from app.log.inspection.gaps import Gaps
from app.log.inspection.questions import LogQuestions

TIME_S_MAX: Final = 5.0
_READING_SHARE: Final = 0.8
"""Of that; the rest is for finding out what values mean."""

BYTES_MAX: Final = 32 * 2**20
"""Read for one page; once it has a message, it is rather shorter than that more is read."""

AT_A_TIME: Final = 4
"""Each holds up to `BYTES_MAX`, and the 4 MB that the client reads ahead."""


class LogBrowser:
    """Reads pages of messages. Safe to use from any thread; blocks.

    A page takes about `time_s_max` seconds at most. `questions` are those of an inspector, whose
    clients it shares.
    """

    def __init__(
        self,
        settings: Settings,
        questions: LogQuestions,
        *,
        time_s_max: float = TIME_S_MAX,
        at_a_time: int = AT_A_TIME,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._settings = settings
        self._questions = questions
        self._time_s_max = time_s_max
        self._bytes_max = bytes_max
        self._schemas = SchemaReader(settings)
        self._places = threading.BoundedSemaphore(at_a_time)

    def close(self) -> None:
        """Close the connections to the schema registry."""
        self._schemas.close()

    def browse(self, question: BrowseQuestion) -> MessagePage:
        """The page that is asked for.

        It is shorter than its limit where the log ends, and where the time of a page or its bytes
        do: then a gap says so, and the cursors lead on.

        Raises:
            BrowseRefused: it cannot be; field, value and what is allowed are told.
            NotInLog: the log has no such topic.
            LogUnavailable: no broker answers.
            InspectionsBusy: as many pages as may be are being read.
        """
        check_question(question)
        if not self._places.acquire(blocking=False):
            raise InspectionsBusy("as many pages of messages as may be are being read")
        try:
            return self._page(question)
        finally:
            self._places.release()

    def _page(self, question: BrowseQuestion) -> MessagePage:
        until, gaps = Deadline(self._time_s_max), Gaps()
        reading_until = Deadline(_READING_SHARE * self._time_s_max)
        entrance = find_entrance(self._questions, question, reading_until, gaps)
        walks = entrance.walks(question.limit)
        with RecordReader(self._settings, question.topic) as reader:
            gathering = Gathering(
                reader,
                walks,
                is_upward=entrance.is_upward,
                deadline=reading_until,
                bytes_max=self._bytes_max,
            )
            records = gathering.records(question.limit, gaps)
        if entrance.is_reversed:
            records.reverse()
        to_json = self._schemas.for_page(until)
        onward, back = entrance.cursors(walks)
        return MessagePage(
            topic=question.topic,
            messages=tuple(message_of(record, to_json) for record in records),
            spans=tuple(
                PartitionSpan(partition, *held)
                for partition, held in sorted(entrance.bounds.items())
            ),
            next_cursor=onward,
            previous_cursor=back,
            gaps=gaps.told(),
        )
