"""Finds batches that no consumer can read, and the offset at which reading can continue.

Kafka's clients stop at such a batch for good: librdkafka reports an error for a wrong CRC or a
failed decompression and fetches the batch again, and for records that do not parse it reports
nothing at all. An error names at most the base offset. So this module fetches the raw batch and
looks for the next one.
"""

from collections.abc import Mapping
from typing import Final

from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.parsing.first_batch import FirstBatch, check_first_batch
from logbroker.client.raw.parsing.metadata import LATEST, TopicPartition
from logbroker.client.raw.single_fetch import CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, fetch_once
from logbroker.client.skipped_batches import Inspection, SkippedBatch
from logbroker.wire.fetch_client import FetchedPartition

TIMEOUT_S: Final = 5.0
"""How long a search waits for a broker that does not answer."""

BATCHES_MAX: Final = 1_000
"""Batches that one search passes; the next search continues there."""

_BYTES: Final = 256 * 2**10
"""Enough for a usual batch and the header of the next one."""

_STEPS_ONE_BY_ONE: Final = 512
"""How many offsets after damaged framing are tried one by one. A batch has seldom more, so none
that is readable is missed; further on, the distance doubles."""


def inspect_log(
    properties: Mapping[str, str],
    tp: tuple[str, int],
    offset: int,
    *,
    until: int | None = None,
    rejected: str | None = None,
) -> Inspection:
    """Return what a consumer finds from `offset` on, below `until`; blocks.

    `properties` are a client's, with librdkafka's names. `rejected` is the error of a client that
    cannot read the first batch, which then counts as unreadable in any case.

    Raises:
        ClientError: the log does not answer.
        ConfigurationError: the raw client does not support the properties.
    """
    with RawCluster(properties, timeout_s=TIMEOUT_S) as cluster:
        return _Search(cluster, TopicPartition(*tp)).inspect(offset, until, rejected)


def next_readable(cluster: RawCluster, tp: TopicPartition, offset: int, until: int) -> int:
    """Return the offset behind the unreadable batches at `offset`, at most `until`; blocks.

    It is `offset` if the batch there can be read.

    Raises:
        ClientError: the log does not answer.
    """
    found = _Search(cluster, TopicPartition(*tp)).inspect(offset, until, None).unreadable
    return min(found[-1].end, until) if found else offset


class _Search:
    """A search in one partition."""

    def __init__(self, cluster: RawCluster, tp: TopicPartition) -> None:
        self._cluster = cluster
        self._tp = tp

    def inspect(self, offset: int, until: int | None, rejected: str | None) -> Inspection:
        found: list[SkippedBatch] = []
        end = self._readable_end()
        stop = end if until is None else min(until, end)
        while offset < stop and len(found) < BATCHES_MAX:
            fetched = self._fetch(offset)
            if fetched.error_code == OFFSET_OUT_OF_RANGE:
                break
            batch = _first_batch(fetched, offset)
            reason = batch.problem or rejected
            if reason is not None:
                after = self._end_of(batch, offset, end)
                found.append(SkippedBatch(*self._tp, offset, after, reason))
                offset, rejected = after, None
            elif batch.has_records or batch.announced is None:
                return Inspection(tuple(found), has_records=batch.has_records)
            else:
                # A transaction marker, or records of an aborted transaction.
                offset = batch.announced
        return Inspection(tuple(found), has_records=len(found) == BATCHES_MAX)

    def _readable_end(self) -> int:
        """Return the log end offset, or that of the first open transaction."""
        end = self._cluster.offsets({self._tp: LATEST}, read_committed=True)[self._tp]
        assert end is not None, "every log has a log end offset"
        return end

    def _fetch(self, offset: int) -> FetchedPartition:
        return fetch_once(self._cluster, self._tp, offset, _BYTES)

    def _end_of(self, batch: FirstBatch, offset: int, end: int) -> int:
        """Return the offset after a batch: that of the next one, or the end of the log."""
        if batch.following is not None:
            return min(batch.following, end)
        announced = batch.announced
        # The header may be damaged, so what it says counts only if a batch begins there.
        if announced is not None and (announced == end or self._begins_at(announced, end)):
            return announced
        return self._next_readable(offset, end)

    def _begins_at(self, offset: int, end: int) -> bool:
        if offset > end:
            return False
        fetched = self._fetch(offset)
        return bool(fetched.records) and _first_batch(fetched, offset).base_offset == offset

    def _next_readable(self, offset: int, end: int) -> int:
        """Return the first offset after `offset` from which the log can be read, at most `end`."""
        unreadable, step, readable = offset, 1, end
        while unreadable + step < end:
            if self._is_readable_at(unreadable + step):
                readable = unreadable + step
                break
            unreadable += step
            if unreadable - offset >= _STEPS_ONE_BY_ONE:
                step *= 2
        while readable - unreadable > 1:
            middle = (unreadable + readable) // 2
            if self._is_readable_at(middle):
                readable = middle
            else:
                unreadable = middle
        return readable

    def _is_readable_at(self, offset: int) -> bool:
        fetched = self._fetch(offset)
        if fetched.error_code or not fetched.records:
            return False
        return _first_batch(fetched, offset).problem is None


def _first_batch(fetched: FetchedPartition, offset: int) -> FirstBatch:
    if fetched.error_code == CORRUPT_MESSAGE:
        return FirstBatch("the broker reports that it is corrupt", offset, None, None, False)
    if not fetched.records:
        # The broker has more than it returns; a consumer waits as well.
        return FirstBatch(None, offset, None, None, has_records=True)
    return check_first_batch(fetched.records, offset, fetched.aborted)
