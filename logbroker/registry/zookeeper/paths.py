"""The paths of nodes in ZooKeeper, relative to the chroot of the connection string.

They are Kafka's, except for `/logbroker` and a group's `membership`, which only logbroker uses.
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
ACLS: Final = "/logbroker/acls"
USERS: Final = "/logbroker/users"
QUOTAS: Final = "/logbroker/quotas"

# Printable ASCII, except `/`, which separates names, and `%`, which starts an encoded character.
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%")


_EMPTY: Final = "%"
"""The node of the empty group id; no other name is encoded like this."""


def node_name(name: str) -> str:
    """Encode any name as the name of a node; usual names stay unchanged."""
    if not name:
        return _EMPTY
    # ZooKeeper rejects these names, because they are relative path elements.
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe=_PLAIN)


def name_of_node(node: str) -> str | None:
    """Decode the name of a node; None if `node_name` cannot have produced it."""
    name = "" if node == _EMPTY else unquote(node, errors="replace")
    return name if node_name(name) == node else None


def broker(broker_id: int) -> str:
    """Return the path of a broker's registration, an ephemeral node."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic's id and replicas."""
    return f"{BROKER_TOPICS}/{name}"


def topic_config(name: str) -> str:
    """Return the path of a topic's settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def slot(number: int) -> str:
    """Return the path of a coordination slot; its data version is the fence."""
    return f"{SLOTS}/{number}"


def slot_holder(number: int) -> str:
    """Return the path of the broker that holds a slot, an ephemeral node."""
    return f"{SLOTS}/{number}/holder"


def group(group_id: str) -> str:
    """Return the path of a consumer group."""
    return f"{CONSUMERS}/{node_name(group_id)}"


def membership(group_id: str) -> str:
    """Return the path of a group's last generation in Kafka's protocol."""
    return f"{group(group_id)}/membership"


def consumer_ids(group_id: str) -> str:
    """Return the path of the paper's consumer registry: one ephemeral child per consumer."""
    return f"{group(group_id)}/ids"


def owners(group_id: str, topic: str) -> str:
    """Return the path of the paper's ownership registry: one child per owned partition."""
    return f"{group(group_id)}/owners/{topic}"


def offsets(group_id: str) -> str:
    """Return the path of the paper's offset registry: one child per topic."""
    return f"{group(group_id)}/offsets"


def topic_offsets(group_id: str, topic: str) -> str:
    """Return the path of a group's offsets in one topic: one child per partition."""
    return f"{group(group_id)}/offsets/{topic}"


def offset(group_id: str, topic: str, partition: int) -> str:
    """Return the path of a group's offset in one partition."""
    return f"{group(group_id)}/offsets/{topic}/{partition}"
