"""The content of nodes: JSON with the keys and types that Kafka uses.

Source: Kafka, `ZkData.scala`. Only a broker's `directory_id` and the nodes of coordination slots
are specific to logbroker; the holder of a slot has the format of `/controller`. Kafka's tools
ignore unknown keys.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from logbroker.listeners import parse_address
from logbroker.registry.cluster import BrokerEndpoint
from logbroker.registry.topic import Topic
from logbroker.storage.identity import encode_uuid

BROKER_VERSION: Final = 5
TOPIC_VERSION: Final = 3
NO_JMX: Final = -1

BROKER_ID_MAX: Final = 2**31 - 1
PORT_MAX: Final = 2**16 - 1
HOST_BYTES_MAX: Final = 255

_MALFORMED: Final = (KeyError, TypeError, OverflowError)
"""A field is missing, has the wrong type, or is an infinite number, which Python's JSON accepts."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's registration; only brokers of logbroker have a `directory_id`."""

    endpoint: BrokerEndpoint
    directory_id: str | None


def format_broker(registration: Registration, timestamp_ms: int) -> bytes:
    """Encode `/brokers/ids/<id>`."""
    endpoint = registration.endpoint
    return _encode(
        {
            "version": BROKER_VERSION,
            "host": endpoint.host,
            "port": endpoint.port,
            "jmx_port": NO_JMX,
            "timestamp": str(timestamp_ms),
            "endpoints": [str(each) for each in endpoint.listeners],
            "listener_security_protocol_map": {
                each.name: each.protocol.value for each in endpoint.listeners
            },
            "features": {},
            "directory_id": registration.directory_id,
        }
    )


def parse_broker(broker_id: int, content: bytes) -> Registration:
    """Decode a broker's registration; without endpoints it has one listener, PLAINTEXT.

    Raises:
        ValueError: host, port or an endpoint is missing or malformed.
    """
    fields = _decode(content)
    try:
        protocols = {str(name): str(each) for name, each in _protocols(fields).items()}
        endpoint = BrokerEndpoint(
            _broker_id(broker_id),
            _host(str(fields["host"])),
            _port(fields["port"]),
            tuple(parse_address(str(each), protocols) for each in fields.get("endpoints", ())),
        )
        for each in endpoint.listeners:
            _host(each.host)
    except (*_MALFORMED, AttributeError) as error:
        raise ValueError(f"host and port cannot be read: {error}") from None
    directory_id = fields.get("directory_id")
    return Registration(endpoint, None if directory_id is None else str(directory_id))


def format_topic(topic: Topic) -> bytes:
    """Encode `/brokers/topics/<topic>`."""
    return _encode(
        {
            "version": TOPIC_VERSION,
            "partitions": {str(number): list(each) for number, each in enumerate(topic.replicas)},
            "adding_replicas": {},
            "removing_replicas": {},
            "topic_id": encode_uuid(topic.topic_id),
        }
    )


def parse_topic(name: str, content: bytes, settings: Mapping[str, str]) -> Topic:
    """Decode a topic's node; `settings` come from another node.

    Raises:
        ValueError: it has no id, its partitions are not 0 to n, or a partition has other than one
            replica.
    """
    fields = _decode(content)
    try:
        partitions = {int(number): each for number, each in fields["partitions"].items()}
        replicas = tuple(
            tuple(_broker_id(each) for each in partitions[number])
            for number in range(len(partitions))
        )
        topic_id = _decode_uuid(fields["topic_id"])
    except (*_MALFORMED, AttributeError) as error:
        raise ValueError(f"a field or a partition is missing: {error!r}") from None
    if not replicas or any(len(each) != 1 for each in replicas):
        raise ValueError(f"each partition needs exactly one replica: {fields['partitions']}")
    return Topic(name, topic_id, replicas, settings)


def format_settings(settings: Mapping[str, str]) -> bytes:
    """Encode `/config/topics/<topic>`."""
    return _encode({"version": 1, "config": dict(settings)})


def parse_settings(content: bytes) -> Mapping[str, str]:
    """Decode a topic's settings, which are immutable.

    Raises:
        ValueError: they are missing or malformed.
    """
    fields = _decode(content)
    try:
        return MappingProxyType({str(k): str(v) for k, v in fields["config"].items()})
    except (KeyError, AttributeError) as error:
        raise ValueError(f"settings are missing: {error!r}") from None


def format_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode `/controller`."""
    return _encode({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def format_slot_holder(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode the holder of a coordination slot, in the format of `/controller`."""
    return format_controller(broker_id, timestamp_ms)


def parse_holder(content: bytes) -> int:
    """Decode the broker that holds an elected role: the controller's, or that of a slot.

    Raises:
        ValueError: the broker id is missing or malformed.
    """
    try:
        return _broker_id(_decode(content)["brokerid"])
    except _MALFORMED as error:
        raise ValueError(f"brokerid cannot be read: {error!r}") from None


def format_cluster_id(cluster_id: str) -> bytes:
    """Encode `/cluster/id`, whose version is a string."""
    return _encode({"version": "1", "id": cluster_id})


def parse_cluster_id(content: bytes) -> str:
    """Decode the cluster id.

    Raises:
        ValueError: the id is missing.
    """
    try:
        return str(_decode(content)["id"])
    except KeyError:
        raise ValueError(f"id is missing in {content!r}") from None


def format_producer_id_block(broker_id: int, block: range) -> bytes:
    """Encode `/latest_producer_id_block`; both ends are inclusive, and strings."""
    return _encode(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(block.start),
            "block_end": str(block.stop - 1),
        }
    )


def parse_next_producer_id(content: bytes) -> int:
    """Return the first producer id after the last allocated block.

    Raises:
        ValueError: the block is missing or malformed.
    """
    try:
        return int(_decode(content)["block_end"]) + 1
    except _MALFORMED as error:
        raise ValueError(f"block_end cannot be read: {error!r}") from None


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{content[:80]!r} is not a JSON object")
    return fields


def _protocols(fields: dict[str, Any]) -> dict[str, Any]:
    protocols: dict[str, Any] = fields.get("listener_security_protocol_map", {})
    return protocols


# Values must fit the fields of the protocol, or no response could be encoded.


def _broker_id(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= BROKER_ID_MAX:
        raise ValueError(f"broker id is {number}; allowed is 0 to {BROKER_ID_MAX}")
    return number


def _port(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= PORT_MAX:
        raise ValueError(f"port is {number}; allowed is 0 to {PORT_MAX}")
    return number


def _host(text: str) -> str:
    # A lone surrogate, which JSON allows, cannot be encoded: that also raises ValueError.
    if len(text.encode()) > HOST_BYTES_MAX:
        raise ValueError(f"host has {len(text)} characters; allowed are {HOST_BYTES_MAX} bytes")
    return text


def _decode_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a valid id: {error}") from None
