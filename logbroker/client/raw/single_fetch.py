"""Fetches the bytes at one offset, once, for checks of what a consumer cannot read."""

from typing import Final

from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.parsing.errors import AttemptFailed, ConnectionFailed, error_for_code
from logbroker.client.raw.parsing.metadata import TopicPartition
from logbroker.client.raw.retries import retry
from logbroker.wire.error_codes import NONE
from logbroker.wire.fetch import FIRST_WITH_RACK, FIRST_WITH_TOPIC_ID
from logbroker.wire.fetch_client import (
    READ_COMMITTED,
    FetchedPartition,
    FetchParameters,
)

CORRUPT_MESSAGE: Final = 2
OFFSET_OUT_OF_RANGE: Final = 1
_RETURNED: Final = frozenset((NONE, CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE))
"""Error codes that say something about the log at the offset."""

_WAIT_MS: Final = 100


def fetch_once(
    cluster: RawCluster, tp: TopicPartition, offset: int, bytes_max: int
) -> FetchedPartition:
    """Return the committed batches at an offset, up to `bytes_max`; the first batch in any size.

    The error code is one of no error, CORRUPT_MESSAGE and OFFSET_OUT_OF_RANGE. Other failures are
    retried up to the cluster's timeout.

    Raises:
        ClientError: the partition cannot be fetched.
    """
    timer = cluster.start_timer(f"fetching {tp} at offset {offset}")
    return retry(timer, lambda: _fetch(cluster, tp, offset, bytes_max))


def _fetch(
    cluster: RawCluster, tp: TopicPartition, offset: int, bytes_max: int
) -> FetchedPartition:
    plan, leader = cluster.leader(tp)
    call = FetchParameters(
        topic=tp.topic,
        topic_id=plan.topic_id,
        partition=tp.partition,
        leader_epoch=leader.epoch,
        offset=offset,
        bytes_max=bytes_max,
        max_wait_ms=_WAIT_MS,
        isolation_level=READ_COMMITTED,
    )
    # Without a rack, the leader itself answers.
    highest = FIRST_WITH_RACK - 1
    assert highest < FIRST_WITH_TOPIC_ID
    connection = cluster.connections.acquire(leader.address)
    try:
        answer = connection.receive_fetch(connection.send_fetch(call, highest=highest))
    except BaseException:
        cluster.connections.discard(connection)
        cluster.invalidate(tp.topic)
        raise
    cluster.connections.release(connection)
    found = [each for each in answer.partitions if each.partition == tp.partition]
    code = answer.error_code or (found[0].error_code if found else NONE)
    if code not in _RETURNED:
        cluster.invalidate(tp.topic)
        raise error_for_code(f"the records of {tp}", code)
    if not found:
        if answer.throttle_ms:
            raise AttemptFailed("the broker throttles this client")
        raise ConnectionFailed(f"{tp} is missing in the response")
    return found[0]
