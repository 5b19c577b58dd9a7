"""Produce: appends the batches of a turn, writes each log once, and responds in request order.

This is the hot path of the broker. A request that matches an earlier one of its connection (one
batch for the same partition) uses a template, which caches the partition and the bytes of the
response. Other requests take the general path, with the same results.

Runs with `acks=all` wait in a purgatory until the flush of their partitions. A request with a batch
that takes long to validate is held until another thread has done that, and so are the later ones of
its connection. A request with many batches is held for some turns, which append a part each.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from logbroker.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    LargeBatch,
    RequestRefused,
    RequestTimedOut,
    StorageFailed,
    UnsupportedCompression,
)
from logbroker.records.batch import COMPRESSION_MASK, HEADER_BYTES
from logbroker.records.compression import Codec
from logbroker.records.validator import TurnAllowance, validate_batch
from logbroker.server.authorization.access import Access, Client
from logbroker.server.connection import Connection
from logbroker.server.group_commit import GroupCommit
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partition, Partitions
from logbroker.server.produce_run import (
    GeneralRequest,
    HoldReason,
    ProducePurgatory,
    ProduceRun,
    Validated,
    error_outcome,
)
from logbroker.server.worker_pool import Pauses, WorkerPool
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

BATCHES_PER_TURN: Final = 50
"""Batches of one request; a partition costs one write, about a tenth of a millisecond."""

FIRST_VERSION_WITH_ZSTD: Final = 7
ATTRIBUTES_LOW_BYTE: Final = 22


class ProduceHandler:
    """Appends the batches of Produce requests, and completes the requests at the turn's end.

    Large batches are validated on `validators`, a pool of one thread; then `on_resumed` gets the
    connection, whose response must be sent at the turn's end.
    """

    def __init__(
        self,
        loop: SocketLoop,
        partitions: Partitions,
        access: Access,
        commit: GroupCommit,
        counters: Counters,
        validators: WorkerPool,
        on_resumed: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._access = access
        self._partitions = partitions
        self._commit = commit
        self._counters = counters
        self._seconds = counters.request_seconds[PRODUCE_KEY]
        self._run: ProduceRun | None = None
        self._runs: list[ProduceRun] = []
        self._allowance = TurnAllowance()
        self._validators = validators
        self._pauses = Pauses()
        self._on_resumed = on_resumed
        self._held: set[ProduceRun] = set()
        """Runs of one request each, whose next batch is being validated on another thread."""
        self._staged: dict[Partition, tuple[int, int]] = {}
        """Partitions with staged batches: log end offset and written bytes before them."""
        self._write_failed: set[Partition] = set()
        """Partitions whose last write failed; the failure is logged once."""
        self.purgatory = ProducePurgatory()

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        """Append the batches of the request at `view[start:end]`; `end_turn` completes it.

        Returns whether it is held, until `release_frames`: the caller must hold the later frames.
        """
        request = connection.produce_decoder.decode(view, start, end)
        run = self._run
        if run is None or run.connection is not connection or run.acks != request.acks:
            run = self._open_run(connection, request)
        template = request.template
        if template is None:
            return self._append_all(run, GeneralRequest(request, []), view)
        partition = template.cached_partition
        if partition is None or not partition.is_open:
            return self._append_first(run, template, request, view)
        if partition not in self._staged:
            self._stage(partition)
        try:
            base_offset = partition.log.append(
                view[request.start : request.end], run.now_ms, self._allowance
            )
        except RequestRefused as refusal:
            self._record_write_failure(partition, refusal)
            run.entries.append(self._encode_error(template, request, refusal))
            return False
        except LargeBatch:
            return self._hold(run, GeneralRequest(request.detach(), []), view, HoldReason.LARGE)
        run.entries.append((template, request.correlation_id, partition, base_offset))
        return False

    @property
    def partitions_write_failed(self) -> int:
        """The number of partitions whose last write failed; safe on any thread."""
        return len(self._write_failed)

    def end_run(self) -> None:
        """End the current run: a request of another kind or connection follows."""
        self._run = None

    def throttle_run(self, api_version: int, throttle_ms: int) -> None:
        """End the current run with a throttle time in the response to its last request."""
        assert self._run is not None, "a request was just handled"
        self._run.throttle = api_version, throttle_ms
        self._run = None

    def end_turn(self) -> None:
        """Write each log once, start flushes, and complete the runs that wait for none."""
        runs, self._runs = self._runs, []
        if not runs and not self._staged:
            return
        self._allowance.refill()
        failed = self._write()
        if failed:
            for run in (*runs, *self._held):
                touched = run.partitions()
                run.failed.update((each, why) for each, why in failed.items() if each in touched)
        for run in runs:
            self._counters.requests[PRODUCE_KEY] += len(run.entries)
            if run.acks == ACKS_ALL:
                self._await_flush(run)
            elif run.acks == ACKS_NONE:
                self._close_if_failed(run)
            else:
                self._complete(run)

    def complete_flushed(self, partition: Partition) -> list[Connection]:
        """Complete runs after the high watermark advanced; returns connections to send on."""
        runs = self.purgatory.pop_flushed(partition, partition.log.high_watermark)
        return [run.connection for run in runs if self._complete_if_flushed(run, partition)]

    def fail_unflushed(self, partition: Partition, refusal: RequestRefused) -> list[Connection]:
        """Fail all runs that wait for a flush; returns connections to send on."""
        runs = self.purgatory.pop_all(partition)
        for run in runs:
            run.failed[partition] = refusal
        return [run.connection for run in runs if self._complete_if_flushed(run, partition)]

    def close_partition(self, partition: Partition, reason: RequestRefused) -> list[Connection]:
        """Fail the runs of a closed partition without staged batches; see `fail_unflushed`."""
        self._write_failed.discard(partition)
        return self.fail_unflushed(partition, reason)

    def expire(self) -> list[Connection]:
        """Fail the runs whose timeout has passed; their records stay in the log."""
        expired = list(self.purgatory.expired(self._loop.now_s))
        connections = []
        for run in expired:
            # A run that waits for several partitions is in the list several times.
            if not run.is_complete:
                late = RequestTimedOut("the flush takes longer than timeout.ms")
                run.failed.update(dict.fromkeys(run.unflushed, late))
                self._complete(run)
                connections.append(run.connection)
        self.purgatory.remove_complete()
        return connections

    def _open_run(self, connection: Connection, request: ProduceRequest) -> ProduceRun:
        response = None if request.acks == ACKS_NONE else connection.responses.add()
        now_s = self._loop.now_s
        deadline_s = now_s + request.timeout_ms / 1000
        run = ProduceRun(connection, response, request.acks, now_s, deadline_s, self._loop.now_ms)
        self._run = run
        self._runs.append(run)
        return run

    def _stage(self, partition: Partition) -> None:
        log = partition.log
        self._staged[partition] = log.log_end_offset, log.written_bytes

    def _encode_error(
        self, template: ProduceTemplate, request: ProduceRequest, refusal: RequestRefused
    ) -> bytes:
        self._counters.count_error(PRODUCE_KEY, code_of(refusal))
        return template.encode_outcome(request.correlation_id, error_outcome(refusal))

    def _append_first(
        self, run: ProduceRun, template: ProduceTemplate, request: ProduceRequest, view: memoryview
    ) -> bool:
        """Append through the general path and, on success, cache the partition in the template.

        Versions without zstd stay on the general path, which checks the codec of every batch.
        """
        try:
            partition, result = self._append_one(run.connection, request, request.batches[0], view)
        except LargeBatch:
            return self._hold(run, GeneralRequest(request.detach(), []), view, HoldReason.LARGE)
        if not isinstance(result, int):
            run.entries.append(self._encode_error(template, request, result))
            return False
        assert partition is not None
        if request.api_version >= FIRST_VERSION_WITH_ZSTD:
            template.cached_partition = partition
        run.entries.append((template, request.correlation_id, partition, result))
        return False

    def _append_all(self, run: ProduceRun, entry: GeneralRequest, view: memoryview) -> bool:
        reason = self._append_rest(run.connection, entry, view)
        if reason is not None:
            return self._hold(run, entry, view, reason)
        run.entries.append(entry)
        return False

    def _append_rest(
        self,
        connection: Connection,
        entry: GeneralRequest,
        view: memoryview,
        validated_ms: int | None = None,
    ) -> HoldReason | None:
        """Append the batches without a result; returns why the next one is not appended now.

        `validated_ms` is the result of validating the first of them.
        """
        request, results = entry
        for number, batch in enumerate(request.batches[len(results) :]):
            if number == BATCHES_PER_TURN:
                return HoldReason.MANY
            try:
                results.append(self._append_one(connection, request, batch, view, validated_ms))
            except LargeBatch:
                return HoldReason.LARGE
            validated_ms = None
        for _, result in results:
            if not isinstance(result, int):
                self._counters.count_error(PRODUCE_KEY, code_of(result))
        return None

    def _hold(
        self, run: ProduceRun, entry: GeneralRequest, view: memoryview, reason: HoldReason
    ) -> bool:
        """Complete a request later, since its next batches take long; returns True."""
        if run.entries:
            run = self._open_run(run.connection, entry.request)
        self._runs.remove(run)
        run.entries.append(entry)
        self._held.add(run)
        self._continue(run, entry, view, reason)
        return True

    def _continue(
        self, run: ProduceRun, entry: GeneralRequest, view: memoryview, reason: HoldReason
    ) -> None:
        """Continue a held request after the validation of its next batch, or in another turn."""
        if reason is HoldReason.LARGE:
            self._validate(run, entry, view)
        else:
            self._loop.call_soon(lambda: self._try_resume(run, entry, view, None))

    def _validate(self, run: ProduceRun, entry: GeneralRequest, view: memoryview) -> None:
        """Validate the next batch of a held request on another thread, then resume the request."""
        batch = entry.request.batches[len(entry.results)]
        records = view[batch.start : batch.end]
        log = self._partitions.get(batch.topic, batch.partition).log
        config = log.config
        timestamp_range = config.timestamp_range(self._loop.now_ms)

        def validate() -> int:
            return validate_batch(
                records, timestamp_range, self._pauses.pause, key_required=config.is_compacted
            )

        def validated(result: int | Exception) -> None:
            # Changed settings may have other rules.
            self._try_resume(run, entry, view, result if log.config is config else None)

        self._validators.submit_metered(validate, run.connection.count_work, validated)

    def _try_resume(
        self, run: ProduceRun, entry: GeneralRequest, view: memoryview, validated: Validated
    ) -> None:
        """Continue a held request, whose connection may be closed; an error closes it."""
        if not run.connection.is_open:
            self._held.remove(run)
            return
        try:
            self._resume(run, entry, view, validated)
        except Exception as error:
            self._held.discard(run)
            run.connection.fail_request(error)

    def _resume(
        self, run: ProduceRun, entry: GeneralRequest, view: memoryview, validated: Validated
    ) -> None:
        """Continue a held request."""
        if isinstance(validated, RequestRefused):
            entry.results.append((None, validated))
            validated = None
        elif isinstance(validated, Exception):
            raise validated
        run.now_ms = self._loop.now_ms
        reason = self._append_rest(run.connection, entry, view, validated)
        if reason is not None:
            self._continue(run, entry, view, reason)
            return
        self._held.remove(run)
        self._runs.append(run)
        run.connection.release_frames()
        self._on_resumed(run.connection)

    def _append_one(
        self,
        connection: Connection,
        request: ProduceRequest,
        batch: ProduceBatch,
        view: memoryview,
        validated_ms: int | None = None,
    ) -> tuple[Partition | None, int | RequestRefused]:
        partition = None
        try:
            if self._access.is_restricted:
                client = Client(connection.principal, connection.client_host)
                self._access.check_produce(client, request.transactional_id, batch.topic)
            partition = self._partitions.get(batch.topic, batch.partition)
            if request.acks not in ACKS_ALLOWED:
                raise InvalidRequiredAcks(f"acks is {request.acks}; allowed is 0, 1 and -1")
            if batch.end - batch.start < HEADER_BYTES:
                raise InvalidRecord(f"{partition}: a Produce request must contain one whole batch")
            codec = view[batch.start + ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK
            if codec == Codec.ZSTD and request.api_version < FIRST_VERSION_WITH_ZSTD:
                raise UnsupportedCompression(
                    f"Produce v{request.api_version} does not support zstd"
                )
            if partition not in self._staged:
                self._stage(partition)
            records = view[batch.start : batch.end]
            return partition, partition.log.append(
                records, self._loop.now_ms, self._allowance, validated_ms
            )
        except RequestRefused as refusal:
            if partition is not None:
                self._record_write_failure(partition, refusal)
            return partition, refusal

    def _write(self) -> dict[Partition, RequestRefused]:
        staged, self._staged = self._staged, {}
        failed: dict[Partition, RequestRefused] = {}
        for partition, (end_before, bytes_before) in staged.items():
            log = partition.log
            try:
                if log.has_staged:
                    log.write()
                    self._write_failed.discard(partition)
            except StorageFailed as failure:
                self._record_write_failure(partition, failure)
                failed[partition] = failure
            partition.traffic.messages_in += max(0, log.log_end_offset - end_before)
            partition.traffic.bytes_in += log.written_bytes - bytes_before
            self._commit.schedule_flush(partition)
        return failed

    def _record_write_failure(self, partition: Partition, refusal: RequestRefused) -> None:
        """Count a storage failure, and log it unless the previous write failed too."""
        if not isinstance(refusal, StorageFailed):
            return
        self._counters.write_failures += 1
        if partition not in self._write_failed:
            self._write_failed.add(partition)
            _log.error("write failed partition=%s reason=%s", partition, refusal)

    def _await_flush(self, run: ProduceRun) -> None:
        for partition in run.partitions() - run.failed.keys():
            # Appended batches and duplicates of the run are below the log end offset.
            end, failure = partition.log.log_end_offset, partition.log.failure
            if partition.log.high_watermark < end:
                if failure is None:
                    self.purgatory.add(partition, end, run)
                else:
                    run.failed[partition] = failure  # the flush failed while the run was held
        if not run.unflushed:
            self._complete(run)

    def _complete_if_flushed(self, run: ProduceRun, partition: Partition) -> bool:
        """Remove one partition from `unflushed`; returns whether that completed the run."""
        run.unflushed.discard(partition)
        if run.unflushed or run.is_complete:
            return False
        self._complete(run)
        return True

    def _complete(self, run: ProduceRun) -> None:
        run.complete()
        self._seconds.observe(time.monotonic() - run.began_s, len(run.entries))
        if run.failed:
            self._count_failed(run)

    def _count_failed(self, run: ProduceRun) -> None:
        for failure in run.failures():
            self._counters.count_error(PRODUCE_KEY, code_of(failure))

    def _close_if_failed(self, run: ProduceRun) -> None:
        # With acks=0 there is no response: a closed connection is the only sign of an error.
        if run.has_errors():
            self._count_failed(run)
            run.connection.close("a batch with acks=0 was rejected")
