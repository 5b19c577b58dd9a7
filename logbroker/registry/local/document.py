"""The metadata of a single broker as one JSON document, and its changes.

{"version": 2, "cluster_id": "...", "broker_id": 0, "next_producer_id": 0, "journal": "...",
 "topics": [{"name": "...", "topic_id": "...", "partitions": 1, "settings": {}}]}

This broker owns all partitions. Version 1 has no journal; `logbroker.registry.local.journal`
explains it. Logbroker 0.1 wrote `"deleting": true` for a topic whose directories were being
removed; such a topic counts as deleted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable

VERSION: Final = 2
VERSION_WITHOUT_JOURNAL: Final = 1


@dataclass(frozen=True, slots=True)
class RegistryDocument:
    """All metadata of the registry; immutable.

    Producer ids below `next_producer_id` are allocated. `journal` is the id of the file with later
    changes; None if there is none.
    """

    cluster_id: str
    broker_id: int
    next_producer_id: int
    topics: TopicTable
    journal: str | None


@dataclass(frozen=True, slots=True)
class RegistryChange:
    """One change of the metadata: topics that are new or replaced, or deleted if None."""

    topics: Mapping[str, Topic | None] = field(default_factory=dict)
    next_producer_id: int | None = None

    def apply(self, document: RegistryDocument) -> RegistryDocument:
        """Return the changed document."""
        next_producer_id = self.next_producer_id
        return replace(
            document,
            topics=document.topics.changed(self.topics) if self.topics else document.topics,
            next_producer_id=document.next_producer_id
            if next_producer_id is None
            else next_producer_id,
        )


class DocumentEncoder:
    """Encodes documents with one line per leaf, so that people can read and compare them.

    A topic is encoded again only if it has changed since the last document.
    """

    def __init__(self) -> None:
        self._lines: dict[str, tuple[Topic, str]] = {}

    def encode(self, metadata: RegistryDocument) -> bytes:
        """Return the text of a document."""
        self._lines = {name: self._encode(topic) for name, topic in metadata.topics.items()}
        fields = {
            "version": VERSION,
            "cluster_id": metadata.cluster_id,
            "broker_id": metadata.broker_id,
            "next_producer_id": metadata.next_producer_id,
            "journal": metadata.journal,
        }
        head = json.dumps(fields, indent=1).removesuffix("\n}")
        topics = ",\n".join([lines for _, lines in self._lines.values()])
        array = f"[\n{topics}\n ]" if topics else "[]"
        return f'{head},\n "topics": {array}\n}}\n'.encode()

    def _encode(self, topic: Topic) -> tuple[Topic, str]:
        known = self._lines.get(topic.name)
        if known is not None and known[0] is topic:
            return known
        return topic, indent(json.dumps(_topic_fields(topic), indent=1), "  ")


def parse_metadata(text: bytes) -> RegistryDocument:
    """Decode a document.

    Raises:
        ValueError: the text is not such a document, or has another version.
    """
    try:
        document = json.loads(text)
        version = document["version"]
        if version not in (VERSION, VERSION_WITHOUT_JOURNAL):
            raise ValueError(
                f"unsupported version {version!r}; allowed: {VERSION_WITHOUT_JOURNAL}, {VERSION}"
            )
        broker_id = int(document["broker_id"])
        topics = [
            _topic(fields, broker_id)
            for fields in document["topics"]
            if not fields.get("deleting", False)
        ]
        return RegistryDocument(
            cluster_id=str(document["cluster_id"]),
            broker_id=broker_id,
            next_producer_id=int(document["next_producer_id"]),
            topics=TopicTable.of(topics),
            journal=str(document["journal"]) if version == VERSION else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or has the wrong type: {error}") from None


def format_change(change: RegistryChange) -> bytes:
    """Return the text of a change, without a line end."""
    fields: dict[str, Any] = {}
    topics = [_topic_fields(topic) for topic in change.topics.values() if topic is not None]
    deleted = [name for name, topic in change.topics.items() if topic is None]
    if topics:
        fields["topics"] = topics
    if deleted:
        fields["deleted"] = deleted
    if change.next_producer_id is not None:
        fields["next_producer_id"] = change.next_producer_id
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_change(text: bytes, broker_id: int) -> RegistryChange:
    """Decode a change.

    Raises:
        ValueError: the text is not such a change.
    """
    try:
        fields = json.loads(text)
        topics = [_topic(each, broker_id) for each in fields.get("topics", ())]
        next_producer_id = fields.get("next_producer_id")
        return RegistryChange(
            {**{each.name: each for each in topics}, **dict.fromkeys(fields.get("deleted", ()))},
            None if next_producer_id is None else int(next_producer_id),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or has the wrong type: {error}") from None


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
