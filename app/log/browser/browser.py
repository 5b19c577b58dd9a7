"""Reads pages of the messages of a topic, for the console and the API."""

import threading
from typing import Final

from app.config import Settings
from app.log.browser.message import MessagePage, PartitionSpan, display_message
from app.log.browser.page_reader import PageReader
from app.log.browser.page_start import find_page_start
from app.log.browser.query import BrowseQuery, check_query
from app.log.browser.record_reader import RecordReader
from app.log.browser.schema_reader import SchemaReader
from app.log.errors import InspectionsBusy
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import Gaps
from app.log.inspection.requests import InspectionRequests

TIME_S_MAX: Final = 5.0
_READING_SHARE: Final = 0.8
"""The share for reading; the rest is for schema lookups."""

BYTES_MAX: Final = 32 * 2**20
"""Bytes that are read for one page; a page with messages ends early instead."""

AT_A_TIME: Final = 4
"""Each needs up to `BYTES_MAX`, and 4 MB that the client fetches ahead."""


class LogBrowser:
    """Reads pages of messages. Thread-safe; blocks.

    A page takes at most about `time_s_max` seconds. `requests` are those of a `LogInspector`.
    """

    def __init__(
        self,
        settings: Settings,
        requests: InspectionRequests,
        *,
        time_s_max: float = TIME_S_MAX,
        at_a_time: int = AT_A_TIME,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._time_s_max = time_s_max
        self._bytes_max = bytes_max
        self._schemas = SchemaReader(settings)
        self._slots = threading.BoundedSemaphore(at_a_time)

    def close(self) -> None:
        """Close the connections to the schema registry."""
        self._schemas.close()

    def browse(self, query: BrowseQuery) -> MessagePage:
        """Return a page of messages.

        It is shorter than its limit at the end of the log, and if the limit of time or bytes is
        reached: then a gap says so, and the cursors continue.

        Raises:
            BrowseRefused: the query is invalid.
            NotInLog: the topic does not exist.
            LogUnavailable: no broker answers.
            InspectionsBusy: `at_a_time` pages are being read.
        """
        check_query(query)
        if not self._slots.acquire(blocking=False):
            raise InspectionsBusy("message page limit reached; retry later")
        try:
            return self._page(query)
        finally:
            self._slots.release()

    def _page(self, query: BrowseQuery) -> MessagePage:
        until, gaps = Deadline(self._time_s_max), Gaps()
        reading_until = Deadline(_READING_SHARE * self._time_s_max)
        start = find_page_start(self._requests, query, reading_until, gaps)
        scans = start.scans(query.limit)
        with RecordReader(self._settings, query.topic) as reader:
            page_reader = PageReader(
                reader,
                scans,
                is_forward=start.is_forward,
                deadline=reading_until,
                bytes_max=self._bytes_max,
            )
            records = page_reader.records(query.limit, gaps)
        if start.is_reversed:
            records.reverse()
        to_json = self._schemas.for_page(until)
        next_cursor, previous_cursor = start.cursors(scans)
        return MessagePage(
            topic=query.topic,
            messages=tuple(display_message(record, to_json) for record in records),
            spans=tuple(
                PartitionSpan(partition, *bounds)
                for partition, bounds in sorted(start.bounds.items())
            ),
            next_cursor=next_cursor,
            previous_cursor=previous_cursor,
            gaps=gaps.all(),
        )
