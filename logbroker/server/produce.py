"""Produce: append what came in this turn, write each log once, answer in the order asked.

This is the broker's hottest path. A request that looks like an earlier one of its connection
(same topic, same partition, one batch) passes by a template that remembers the partition found
and the bytes of the answer; everything else takes the general way, which does the same.
"""

import logging
import time
from collections import deque
from typing import Final

from logbroker.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    RequestRefused,
    RequestTimedOut,
    StorageFailed,
    UnsupportedCompression,
)
from logbroker.records.batch import COMPRESSION_MASK, HEADER_BYTES
from logbroker.records.compression import Codec
from logbroker.server.connection import Connection
from logbroker.server.group_commit import GroupCommit
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partition, Partitions
from logbroker.server.produce_run import Mixed, ProduceRun, refused
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import code_of
from logbroker.wire.produce import (
    ProduceBatch,
    ProduceRequest,
    ProduceTemplate,
)

_log: Final = logging.getLogger("logbroker.produce")

PRODUCE_KEY: Final = int(ApiKey.PRODUCE)

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
ACKS_ALLOWED: Final = (ACKS_NONE, ACKS_LEADER, ACKS_ALL)

FIRST_VERSION_WITH_ZSTD: Final = 7
ATTRIBUTES_LOW_BYTE: Final = 22


class ProduceHandler:
    """Takes produce requests during a turn and settles them at its end."""

    def __init__(
        self, loop: SocketLoop, partitions: Partitions, commit: GroupCommit, counters: Counters
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._commit = commit
        self._counters = counters
        self._seconds = counters.request_seconds[PRODUCE_KEY]
        self._run: ProduceRun | None = None
        self._runs: list[ProduceRun] = []
        self._staged: dict[Partition, tuple[int, int]] = {}
        """Where something may wait for its write: log end offset and written bytes before it."""
        self._refusing: set[Partition] = set()
        """Where the disk refused the last write, and it was said."""

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Append what the request at `view[start:end]` holds; the turn's end answers it."""
        request = connection.produce_decoder.decode(view, start, end)
        run = self._run
        if run is None or run.connection is not connection or run.acks != request.acks:
            run = self._open_run(connection, request)
        template = request.template
        if template is None:
            run.entries.append(self._append_all(request, view))
            return
        partition = template.log
        if partition is None or not partition.is_open:
            self._append_first(run, template, request, view)
            return
        if partition not in self._staged:
            self._stage(partition)
        try:
            base_offset = partition.log.append(view[request.start : request.end], run.now_ms)
        except RequestRefused as refusal:
            self._note(partition, refusal)
            run.entries.append(self._refuse(template, request, refusal))
            return
        run.entries.append((template, request.correlation_id, partition, base_offset))

    @property
    def partitions_refusing(self) -> int:
        """Where the disk refused the last write; any thread may ask."""
        return len(self._refusing)

    def end_run(self) -> None:
        """Whatever follows is of another kind, or of another connection."""
        self._run = None

    def settle(self) -> None:
        """Write each log once, start flushes, and answer what need not wait for one."""
        runs, self._runs = self._runs, []
        if not runs:
            return
        failed = self._write()
        for run in runs:
            self._counters.requests[PRODUCE_KEY] += len(run.entries)
            if failed:
                touched = run.partitions()
                run.failed = {gone: why for gone, why in failed.items() if gone in touched}
            if run.acks == ACKS_ALL:
                self._await_flush(run)
            elif run.acks == ACKS_NONE:
                self._close_if_refused(run)
            else:
                self._answer(run)

    def flushed(self, partition: Partition) -> list[Connection]:
        """The high watermark moved: answer who waited for no more; whose connections to send on."""
        waiters = partition.flush_waiters
        high_watermark = partition.log.high_watermark
        done = []
        while waiters and waiters[0][0] <= high_watermark:
            done.append(waiters.popleft()[1])
        return [run.connection for run in done if self._released(run, partition)]

    def failed(self, partition: Partition, refusal: RequestRefused) -> list[Connection]:
        """What waits for this partition's flush waits in vain."""
        runs = [run for _, run in partition.flush_waiters]
        partition.flush_waiters.clear()
        for run in runs:
            run.failed[partition] = refusal
        return [run.connection for run in runs if self._released(run, partition)]

    def closed(self, partition: Partition, reason: RequestRefused) -> list[Connection]:
        """Nothing of this turn is staged, and no flush is told: whose connections to send on."""
        self._refusing.discard(partition)
        return self.failed(partition, reason)

    def time_out(self) -> list[Connection]:
        """Answer the runs whose time is up; what they wrote stays in the log."""
        answered = []
        for partition in self._partitions:
            if not partition.flush_waiters:
                continue
            for _, run in partition.flush_waiters:
                if run.deadline_s <= self._loop.now_s and not run.is_answered:
                    self._answer_late(run)
                    answered.append(run.connection)
            # Nobody waits any more who was answered or has left, however far off the flush is.
            partition.flush_waiters = deque(
                (end, run)
                for end, run in partition.flush_waiters
                if not run.is_answered and run.connection.is_open
            )
        return answered

    def _open_run(self, connection: Connection, request: ProduceRequest) -> ProduceRun:
        slot = None if request.acks == ACKS_NONE else connection.open_slot()
        now_s = self._loop.now_s
        deadline_s = now_s + request.timeout_ms / 1000
        run = ProduceRun(connection, slot, request.acks, now_s, deadline_s, self._loop.now_ms)
        self._run = run
        self._runs.append(run)
        return run

    def _stage(self, partition: Partition) -> None:
        log = partition.log
        self._staged[partition] = log.log_end_offset, log.written_bytes

    def _refuse(
        self, template: ProduceTemplate, request: ProduceRequest, refusal: RequestRefused
    ) -> bytes:
        self._counters.count_error(PRODUCE_KEY, code_of(refusal))
        return template.encode_outcome(request.correlation_id, refused(refusal))

    def _append_first(
        self, run: ProduceRun, template: ProduceTemplate, request: ProduceRequest, view: memoryview
    ) -> None:
        """Append the general way, and let the template know its partition if that went well.

        Versions without zstd stay on this way, where every batch's codec is looked at.
        """
        batch = request.batches[0]
        partition, result = self._append_one(request, batch, view)
        if not isinstance(result, int):
            run.entries.append(self._refuse(template, request, result))
            return
        assert partition is not None
        if request.api_version >= FIRST_VERSION_WITH_ZSTD:
            template.log = partition
        run.entries.append((template, request.correlation_id, partition, result))

    def _append_all(self, request: ProduceRequest, view: memoryview) -> Mixed:
        results = [self._append_one(request, batch, view) for batch in request.batches]
        for _, result in results:
            if not isinstance(result, int):
                self._counters.count_error(PRODUCE_KEY, code_of(result))
        return Mixed(request, results)

    def _append_one(
        self, request: ProduceRequest, batch: ProduceBatch, view: memoryview
    ) -> tuple[Partition | None, int | RequestRefused]:
        partition = None
        try:
            partition = self._partitions.get(batch.topic, batch.partition)
            if request.acks not in ACKS_ALLOWED:
                raise InvalidRequiredAcks(f"acks is {request.acks}; allowed is 0, 1 and -1")
            if batch.end - batch.start < HEADER_BYTES:
                raise InvalidRecord(f"{partition}: a produce request holds one whole batch")
            codec = view[batch.start + ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK
            if codec == Codec.ZSTD and request.api_version < FIRST_VERSION_WITH_ZSTD:
                raise UnsupportedCompression(f"zstd is not in Produce v{request.api_version}")
            if partition not in self._staged:
                self._stage(partition)
            records = view[batch.start : batch.end]
            return partition, partition.log.append(records, self._loop.now_ms)
        except RequestRefused as refusal:
            if partition is not None:
                self._note(partition, refusal)
            return partition, refusal

    def _write(self) -> dict[Partition, RequestRefused]:
        staged, self._staged = self._staged, {}
        failed: dict[Partition, RequestRefused] = {}
        for partition, (end_before, bytes_before) in staged.items():
            log = partition.log
            try:
                if log.has_staged:
                    log.write()
                    self._refusing.discard(partition)
            except StorageFailed as failure:
                self._note(partition, failure)
                failed[partition] = failure
            partition.traffic.messages_in += max(0, log.log_end_offset - end_before)
            partition.traffic.bytes_in += log.written_bytes - bytes_before
            self._commit.written(partition)
        return failed

    def _note(self, partition: Partition, refusal: RequestRefused) -> None:
        """Count what the disk refused; say it once until the disk takes something again."""
        if not isinstance(refusal, StorageFailed):
            return
        self._counters.write_failures += 1
        if partition not in self._refusing:
            self._refusing.add(partition)
            _log.error("write failed partition=%s reason=%s", partition, refusal)

    def _answer_late(self, run: ProduceRun) -> None:
        late = RequestTimedOut("the flush takes longer than timeout.ms")
        run.failed.update(dict.fromkeys(run.waiting, late))
        self._answer(run)

    def _await_flush(self, run: ProduceRun) -> None:
        for partition in run.partitions() - run.failed.keys():
            # Whatever this run appended, and whatever it repeats, lies below the log's end.
            end = partition.log.log_end_offset
            if partition.log.high_watermark < end:
                run.waiting.add(partition)
                partition.flush_waiters.append((end, run))
        if not run.waiting:
            self._answer(run)

    def _released(self, run: ProduceRun, partition: Partition) -> bool:
        """Take one partition off what a run waits for; whether that made its answer ready."""
        run.waiting.discard(partition)
        if run.waiting or run.is_answered:
            return False
        self._answer(run)
        return True

    def _answer(self, run: ProduceRun) -> None:
        run.answer()
        self._seconds.observe(time.monotonic() - run.began_s, len(run.entries))
        if run.failed:
            self._count_failed(run)

    def _count_failed(self, run: ProduceRun) -> None:
        for failure in run.failures():
            self._counters.count_error(PRODUCE_KEY, code_of(failure))

    def _close_if_refused(self, run: ProduceRun) -> None:
        # Without an answer, a closed connection is the only way to say that something is wrong.
        if run.has_refusals():
            self._count_failed(run)
            run.connection.close("a batch sent with acks=0 was refused")
