"""Which handler answers which request."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from logbroker.server.connection import Connection
from logbroker.server.fetch import FetchHandler
from logbroker.server.handlers.cluster import ClusterHandlers, WholeCluster
from logbroker.server.handlers.committed_offsets import CommittedOffsetHandlers
from logbroker.server.handlers.configs import ConfigHandlers
from logbroker.server.handlers.coordinators import CoordinatorHandlers
from logbroker.server.handlers.described_groups import DescribedGroupHandlers
from logbroker.server.handlers.groups import GroupHandlers
from logbroker.server.handlers.log_dirs import LogDirHandlers
from logbroker.server.handlers.offsets import OffsetHandlers
from logbroker.server.handlers.producer_ids import ProducerIdHandlers
from logbroker.server.handlers.records import RecordHandlers
from logbroker.server.handlers.topics import TopicHandlers
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.produce import ProduceHandler
from logbroker.server.workers import Workers
from logbroker.wire.answer_errors import error_codes
from logbroker.wire.api_versions import answer_api_versions
from logbroker.wire.apis import ApiKey
from logbroker.wire.cold import decode_cold, encode_cold
from logbroker.wire.request import RequestHeader, read_request_header

log = logging.getLogger("logbroker.dispatcher")

# Message classes of kafka-python; each handler names its own pair.
Handler = Callable[[Any], Any]

Deferred = Callable[[Any, Connection, Callable[[Any], None]], None]
"""A handler that answers when it can: it is given the request, the connection that it came by, and
whom to give the response to, on the loop's thread, once, at once or minutes later."""

PRODUCE_KEY: Final = int(ApiKey.PRODUCE)
FETCH_KEY: Final = int(ApiKey.FETCH)

OTHERS_PER_TURN: Final = 16
"""How many requests but Produce one connection gets handled before others have their turn: a
read may bring hundreds, and some take milliseconds each."""


class RequestDispatcher:
    """Gives each frame to its handler and remembers whose turn's end is due."""

    def __init__(
        self,
        produce: ProduceHandler,
        fetch: FetchHandler,
        cold: dict[ApiKey, Handler],
        slow: dict[ApiKey, Handler],
        deferred: dict[ApiKey, Deferred],
        reads: Workers,
        loop: SocketLoop,
        counters: Counters,
    ) -> None:
        self.touched: set[Connection] = set()
        self._produce = produce
        self._fetch = fetch
        self._cold = cold
        self._slow = slow
        self._deferred = deferred
        self._reads = reads
        self._loop = loop
        self._counters = counters

    def dispatch(self, connection: Connection, frames: list[tuple[int, int]]) -> None:
        """Handle the whole frames of one read; `touched` connections are finished by the broker."""
        self.touched.add(connection)
        view = connection.buffer.view()
        others = 0
        for start, end in frames:
            api_key = view[start] << 8 | view[start + 1]
            if api_key == PRODUCE_KEY:
                self._produce.handle(connection, view, start, end)
                continue
            self._produce.end_run()
            if others == OTHERS_PER_TURN:
                connection.postpone(start)
                break
            others += 1
            if api_key == FETCH_KEY:
                self._fetch.handle(connection, view, start, end)
            else:
                self._handle_cold(connection, view[start:end])
        self._produce.end_run()

    def _handle_cold(self, connection: Connection, frame: memoryview) -> None:
        header, body = read_request_header(frame)
        connection.client_id = header.client_id
        self._counters.requests[header.api_key] += 1
        if header.api_key == ApiKey.API_VERSIONS:
            connection.open_slot().fill([answer_api_versions(header, frame, body)])
            self._note_answer(header, self._loop.now_s, Counter())
            return
        request = decode_cold(header, frame, body)
        slow = self._slow.get(ApiKey(header.api_key))
        if slow is not None:
            self._handle_slow(connection, header, lambda: slow(request))
            return
        deferred = self._deferred.get(ApiKey(header.api_key))
        if deferred is not None:
            self._handle_deferred(connection, header, request, deferred)
            return
        response = self._cold[ApiKey(header.api_key)](request)
        connection.open_slot().fill([encode_cold(header, response)])
        self._note_answer(header, self._loop.now_s, _error_codes(response, header))

    def _handle_slow(
        self, connection: Connection, header: RequestHeader, call: Callable[[], Any]
    ) -> None:
        slot, began_s = connection.open_slot(), self._loop.now_s

        def work() -> tuple[bytes, Counter[int]]:
            response = call()
            return encode_cold(header, response), _error_codes(response, header)

        def done(result: tuple[bytes, Counter[int]] | Exception) -> None:
            if isinstance(result, Exception):
                log.error("%s failed", ApiKey(header.api_key).name, exc_info=result)
                connection.close("internal error")
                return
            answer, codes = result
            slot.fill([answer])
            self._note_answer(header, began_s, codes)
            connection.send()

        self._reads.run(work, done)

    def _handle_deferred(
        self, connection: Connection, header: RequestHeader, request: Any, handler: Deferred
    ) -> None:
        slot, began_s = connection.open_slot(), self._loop.now_s

        def answer(response: Any) -> None:
            slot.fill([encode_cold(header, response)])
            self._note_answer(header, began_s, _error_codes(response, header))
            # The end of whichever turn this is sends it.
            self.touched.add(connection)

        handler(request, connection, answer)

    def _note_answer(self, header: RequestHeader, began_s: float, codes: Counter[int]) -> None:
        self._counters.request_seconds[header.api_key].observe(time.monotonic() - began_s)
        for code, times in codes.items():
            self._counters.count_error(header.api_key, code, times)


def _error_codes(response: Any, header: RequestHeader) -> Counter[int]:
    if isinstance(response, WholeCluster):
        return response.error_codes(header.api_version)
    return error_codes(response, header.api_version)


def cold_handlers(
    cluster: ClusterHandlers,
    configs: ConfigHandlers,
    records: RecordHandlers,
    coordinators: CoordinatorHandlers,
    groups: DescribedGroupHandlers,
) -> dict[ApiKey, Handler]:
    """The handlers that answer at once."""
    return {
        ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
        ApiKey.FIND_COORDINATOR: coordinators.find_coordinator,
        ApiKey.LIST_GROUPS: groups.list_groups,
        ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
        ApiKey.DELETE_RECORDS: records.delete_records,
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
    }


def deferred_handlers(
    cluster: ClusterHandlers,
    topics: TopicHandlers,
    configs: ConfigHandlers,
    producer_ids: ProducerIdHandlers,
) -> dict[ApiKey, Deferred]:
    """The handlers that may have to ask the registry first."""
    return {
        ApiKey.METADATA: cluster.metadata,
        ApiKey.CREATE_TOPICS: topics.create_topics,
        ApiKey.DELETE_TOPICS: topics.delete_topics,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.ALTER_CONFIGS: configs.alter,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
        ApiKey.INIT_PRODUCER_ID: producer_ids.init_producer_id,
    }


def group_handlers(
    groups: GroupHandlers, offsets: CommittedOffsetHandlers, described: DescribedGroupHandlers
) -> dict[ApiKey, Deferred]:
    """The handlers that wait for other members of a group, or for its storage."""
    return {
        ApiKey.JOIN_GROUP: groups.join_group,
        ApiKey.SYNC_GROUP: groups.sync_group,
        ApiKey.HEARTBEAT: groups.heartbeat,
        ApiKey.LEAVE_GROUP: groups.leave_group,
        ApiKey.OFFSET_COMMIT: offsets.offset_commit,
        ApiKey.OFFSET_FETCH: offsets.offset_fetch,
        ApiKey.OFFSET_DELETE: offsets.offset_delete,
        ApiKey.DELETE_GROUPS: described.delete_groups,
    }


def slow_handlers(offsets: OffsetHandlers, log_dirs: LogDirHandlers) -> dict[ApiKey, Handler]:
    """The handlers that may read the disk, and so run beside the loop's thread."""
    return {
        ApiKey.LIST_OFFSETS: offsets.list_offsets,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
        ApiKey.DESCRIBE_LOG_DIRS: log_dirs.describe,
    }
