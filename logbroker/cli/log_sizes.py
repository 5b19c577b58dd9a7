"""How much disk logs take, asked of their brokers."""

from collections.abc import Iterable
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S
from logbroker.cli.log_positions import Place

_TIMEOUT_MS: Final = round(REQUEST_TIMEOUT_S * 1000)


def log_sizes(bootstrap_servers: str, places_by_broker: dict[int, set[Place]]) -> dict[Place, int]:
    """The bytes of each log on the disk of the broker it is asked of.

    A log is left out where its broker does not answer, or does not tell.

    Source: KIP-113, DescribeLogDirs. librdkafka's admin client has no such call.
    """
    try:
        client: Any = KafkaAdminClient(  # type: ignore[no-untyped-call]
            bootstrap_servers=bootstrap_servers,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            request_timeout_ms=_TIMEOUT_MS,
        )
    except KafkaError:
        return {}
    try:
        return {
            place: size
            for broker, places in places_by_broker.items()
            for place, size in _sizes_on(client, broker, places).items()
        }
    finally:
        client.close()


def _sizes_on(client: Any, broker: int, places: Iterable[Place]) -> dict[Place, int]:
    asked: dict[str, list[int]] = {}
    for topic, partition in places:
        asked.setdefault(topic, []).append(partition)
    try:
        (answer,) = client.describe_log_dirs(asked, brokers=[broker])
    except KafkaError:
        return {}
    return _sizes(answer["log_dirs"])


def _sizes(log_dirs: list[dict[str, Any]]) -> dict[Place, int]:
    return {
        (topic["name"], partition["partition_index"]): partition["partition_size"]
        for log_dir in log_dirs
        for topic in log_dir["topics"]
        for partition in topic["partitions"]
        # A log on its way to another disk of its broker is listed twice.
        if not partition["is_future_key"]
    }
