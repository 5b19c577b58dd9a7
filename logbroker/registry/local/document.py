"""The cluster's metadata as one JSON document.

{"version": 1, "cluster_id": "...", "broker_id": 0, "next_producer_id": 0,
 "topics": [{"name": "...", "topic_id": "...", "partitions": 1, "settings": {}}]}

All partitions are this broker's. Logbroker 0.1 wrote `"deleting": true` with a topic whose folders
were being removed; such a topic is gone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from logbroker.registry.topic import Topic

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Everything the registry knows; a change makes a new one.

    Producer ids below `next_producer_id` have been handed out.
    """

    cluster_id: str
    broker_id: int
    next_producer_id: int
    topics: Mapping[str, Topic]


def format_metadata(metadata: ClusterMetadata) -> bytes:
    """The document, one line for each leaf so that a person can read and compare it."""
    document = {
        "version": VERSION,
        "cluster_id": metadata.cluster_id,
        "broker_id": metadata.broker_id,
        "next_producer_id": metadata.next_producer_id,
        "topics": [_topic_fields(topic) for topic in metadata.topics.values()],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def parse_metadata(text: bytes) -> ClusterMetadata:
    """The metadata in a document.

    Raises:
        ValueError: this is no such document, or one of another version.
    """
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise ValueError(f"its version is {document['version']!r}; known is {VERSION}")
        broker_id = int(document["broker_id"])
        topics = [
            _topic(fields, broker_id)
            for fields in document["topics"]
            if not fields.get("deleting", False)
        ]
        return ClusterMetadata(
            cluster_id=str(document["cluster_id"]),
            broker_id=broker_id,
            next_producer_id=int(document["next_producer_id"]),
            topics={topic.name: topic for topic in topics},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or of another type: {error}") from None


def _topic_fields(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": topic.partitions,
        "settings": dict(topic.settings),
    }


def _topic(fields: dict[str, Any], broker_id: int) -> Topic:
    return Topic(
        name=fields["name"],
        topic_id=UUID(fields["topic_id"]),
        replicas=((broker_id,),) * int(fields["partitions"]),
        settings=MappingProxyType(dict(fields["settings"])),
    )
