"""Where everything lies in ZooKeeper, below the chroot that the connection string names.

Kafka's paths, but for `/logbroker` and a group's `membership`, which only logbroker has.
Source: Kafka, `ZkData.scala`; the paper, section 3.2 (the four registries).
"""

from typing import Final
from urllib.parse import quote, unquote

CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
CONTROLLER: Final = "/controller"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONSUMERS: Final = "/consumers"
SLOTS: Final = "/logbroker/coordination"

# Every printable character of ASCII but `/`, which parts names, and `%`, which begins a quoted one.
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%")


def node_name(name: str) -> str:
    """A name of any characters as the name of a node; a usual one stays as it is."""
    # ZooKeeper takes neither for a name, as a path might go up by them.
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe=_PLAIN)


def name_of_node(node: str) -> str | None:
    """The name that `node_name` made this node of; None where it made none of this node's."""
    name = unquote(node, errors="replace")
    return name if node_name(name) == node else None


def broker(broker_id: int) -> str:
    """A broker's registration, ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's id and replicas."""
    return f"{BROKER_TOPICS}/{name}"


def topic_config(name: str) -> str:
    """A topic's settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def slot(number: int) -> str:
    """A coordination slot; the version of its data is the fence, raised with every claim."""
    return f"{SLOTS}/{number}"


def slot_holder(number: int) -> str:
    """The broker that holds a slot, ephemeral."""
    return f"{SLOTS}/{number}/holder"


def group(group_id: str) -> str:
    """All of a consumer group."""
    return f"{CONSUMERS}/{node_name(group_id)}"


def membership(group_id: str) -> str:
    """The last generation of a group by Kafka's protocol."""
    return f"{group(group_id)}/membership"


def consumer_ids(group_id: str) -> str:
    """The paper's consumer registry: an ephemeral child for each consumer."""
    return f"{group(group_id)}/ids"


def owners(group_id: str, topic: str) -> str:
    """The paper's ownership registry: an ephemeral child for each partition that has an owner."""
    return f"{group(group_id)}/owners/{topic}"


def offsets(group_id: str) -> str:
    """The paper's offset registry: a child for each topic."""
    return f"{group(group_id)}/offsets"


def topic_offsets(group_id: str, topic: str) -> str:
    """A group's offsets in one topic: a child for each partition."""
    return f"{group(group_id)}/offsets/{topic}"


def offset(group_id: str, topic: str, partition: int) -> str:
    """The offset that a group has reached in a partition."""
    return f"{group(group_id)}/offsets/{topic}/{partition}"
