"""Reads consumer groups of the paper from ZooKeeper, for display.

Source: the paper, section 3.2: the consumer, ownership and offset registries.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from logbroker.groups.stored import PaperConsumer, PaperGroup, TopicPartition
from logbroker.registry.group_payloads import parse_offset
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.client_settings import NO_SECURITY, ZooKeeperSecurity
from logbroker.registry.zookeeper.session import ZooKeeperSession, children, get

SESSION_S: Final = 6.0
"""The timeout of the reading session, which owns no nodes."""

T = TypeVar("T")


def read_paper_groups(
    address: str, security: ZooKeeperSecurity = NO_SECURITY
) -> dict[str, PaperGroup]:
    """Return every group below an address, `HOST:PORT[,HOST:PORT...][/PATH]`, by name.

    Groups are read one by one while consumers run, so the result is not one consistent state. Nodes
    that do not have the format of the paper's consumers are skipped.

    Raises:
        ConfigurationError: no server answers at the address.
        RegistryUnavailable: ZooKeeper stopped answering.
    """
    servers, slash, path = address.partition("/")
    # The session would create a missing path that is part of the address.
    session = ZooKeeperSession(servers, SESSION_S, security)
    session.connect()
    try:
        return _read_groups(_Tree(session, slash + path))
    finally:
        session.close()


class _Tree:
    """The nodes below a path."""

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        self._session = session
        self._root = root.rstrip("/")

    def children(self, parents: Iterable[str]) -> list[str]:
        """Return the paths of all children of the existing nodes."""
        asked = list(parents)
        answers = self._session.request_all(children(self._root + each) for each in asked)
        return [
            f"{parent}/{name}"
            for parent, names in zip(asked, answers, strict=True)
            for name in sorted(names or ())
        ]

    def values(self, nodes: Iterable[str], parse: Callable[[str], T]) -> dict[str, T]:
        """Parse the content of each node; skip nodes for which `parse` raises ValueError."""
        asked = list(nodes)
        answers = self._session.request_all(get(self._root + each) for each in asked)
        found: dict[str, T] = {}
        for node, answer in zip(asked, answers, strict=True):
            try:
                if answer is not None:
                    found[node] = parse(answer[0].decode())
            except ValueError:
                continue
        return found


def _read_groups(tree: _Tree) -> dict[str, PaperGroup]:
    groups = {}
    for node in tree.children([paths.CONSUMERS]):
        name = paths.name_of_node(_last(node))
        if name is not None:
            groups[name] = _read_group(tree, name)
    return groups


def _read_group(tree: _Tree, name: str) -> PaperGroup:
    streams = tree.values(tree.children([paths.consumer_ids(name)]), _parse_streams)
    return PaperGroup(
        consumers=[PaperConsumer(_last(node), streams[node]) for node in sorted(streams)],
        owners=_read_places(tree, f"{paths.group(name)}/owners", str),
        offsets={
            tp: offset
            for tp, offset in _read_places(
                tree, paths.offsets(name), lambda text: parse_offset(text).offset
            ).items()
            if offset >= 0
        },
    )


def _read_places(tree: _Tree, parent: str, parse: Callable[[str], T]) -> dict[TopicPartition, T]:
    """Read nodes of the form `<parent>/<topic>/<partition>`."""
    values = tree.values(tree.children(tree.children([parent])), parse)
    found = {}
    for node, value in values.items():
        topic, partition = node.removeprefix(f"{parent}/").split("/")
        if partition.isascii() and partition.isdecimal():
            found[topic, int(partition)] = value
    return found


def _parse_streams(text: str) -> dict[str, int]:
    fields = json.loads(text)
    try:
        return {str(topic): int(count) for topic, count in fields["subscription"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{text!r} has no subscription") from error


def _last(node: str) -> str:
    return node.rpartition("/")[2]
