"""Stored consumer groups, which only the owner of their coordination slot writes.

Every write is a transaction that checks the slot's fence (see `coordination`). It succeeds before
the next owner claims the slot and reads it, or it fails.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from logbroker.errors import GroupTooLarge, NotCoordinator, RegistryUnavailable
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.registry.cluster import coordination_slot
from logbroker.registry.group_payloads import (
    format_offset,
    membership_fields,
    parse_membership,
    parse_offset,
)
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.session import (
    REQUEST_BYTES_MAX,
    REQUEST_S,
    Deadline,
    RequestTooLarge,
    ZooKeeperSession,
    children,
    exists,
    get,
)

# An upper bound of a deletion's bytes in addition to its path.
DELETE_BYTES: Final = 64

OFFSETS: Final = "offsets"
OWN_NODES: Final = frozenset({OFFSETS, "membership"})
"""The nodes of a group that its coordinator writes; consumers of the paper write offsets too."""

_log = logging.getLogger(__name__)


class GroupStore:
    """Consumer groups below `/consumers`.

    `fence_of` returns the fence of a slot, or raises NotCoordinator. `on_refused` receives each
    slot whose fence has changed.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        fence_of: Callable[[int], int],
        on_refused: Callable[[int], None],
    ) -> None:
        self._session = session
        self._fence_of = fence_of
        self._on_refused = on_refused
        self._loaded_under: dict[int, int] = {}
        """The fence of each slot when it was last loaded.

        Later writes depend on what was loaded. A slot that was lost and claimed again must be
        loaded first.
        """

    def load(self, slot: int) -> list[StoredGroup]:
        """Return every group of a slot that has stored state; see `Registry.load_groups`."""
        fence = self._fence_of(slot)
        nodes = self._session.request(children(paths.CONSUMERS))
        names = [name for node in nodes if (name := paths.name_of_node(node)) is not None]
        wanted = sorted(name for name in names if coordination_slot(name) == slot)
        contents = self._session.request_all(get(paths.membership(name)) for name in wanted)
        memberships = {
            name: _membership(name, *answer)
            for name, answer in zip(wanted, contents, strict=True)
            if answer is not None
        }
        offsets = self._load_offsets(wanted)
        if self._fence_of(slot) != fence:
            raise NotCoordinator(f"coordination slot {slot} was lost while it was read")
        self._loaded_under[slot] = fence
        groups = (
            StoredGroup(name, memberships.get(name), offsets.get(name, {})) for name in wanted
        )
        return [each for each in groups if each.membership is not None or each.offsets]

    def store_membership(self, group_id: str, membership: StoredMembership) -> None:
        """Replace a membership; see `Registry.store_membership`."""
        content = json.dumps(membership_fields(membership), separators=(",", ":")).encode()

        def build(transaction: TransactionRequest) -> None:
            self._put(transaction, {paths.membership(group_id): content}, [paths.group(group_id)])

        self._write(group_id, build)

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Set offsets, all or none; see `Registry.commit_offsets`."""
        contents = {
            paths.offset(group_id, topic, partition): format_offset(committed).encode()
            for (topic, partition), committed in offsets.items()
        }
        topics = sorted({topic for topic, _ in offsets})
        parents = [
            paths.group(group_id),
            paths.offsets(group_id),
            *(paths.topic_offsets(group_id, topic) for topic in topics),
        ]
        self._write(group_id, lambda transaction: self._put(transaction, contents, parents))

    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        """Delete offsets, and the group if it has nothing else; see `Registry.delete_offsets`."""
        wanted = {paths.offset(group_id, *place) for place in places}

        def existing() -> list[str]:
            (below,) = self._session.request_all([children(paths.group(group_id))])
            offsets, topics = self._offset_nodes(group_id)
            if below == [OFFSETS] and wanted.issuperset(offsets):
                return [*offsets, *topics, paths.offsets(group_id), paths.group(group_id)]
            return [path for path in offsets if path in wanted]

        self._delete(group_id, existing)

    def delete_group(self, group_id: str) -> None:
        """Delete a group; see `Registry.delete_group`.

        Nodes that consumers of the paper keep below the group remain.
        """
        self._delete(group_id, lambda: self._nodes_of(group_id))

    def has_paper_consumers(self, group_id: str) -> bool:
        """Return whether the group has nodes of the paper's consumers."""
        (nodes,) = self._session.request_all([children(paths.group(group_id))])
        return not OWN_NODES.issuperset(nodes or ())

    def _load_offsets(self, names: list[str]) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        answers = self._session.request_all(children(paths.offsets(name)) for name in names)
        topics = [
            (name, topic)
            for name, found in zip(names, answers, strict=True)
            for topic in found or ()
        ]
        answers = self._session.request_all(children(paths.topic_offsets(*each)) for each in topics)
        places = [
            (name, topic, int(node))
            for (name, topic), found in zip(topics, answers, strict=True)
            for node in found or ()
            if node.isascii() and node.isdigit()
        ]
        answers = self._session.request_all(get(paths.offset(*place)) for place in places)
        offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for (name, topic, partition), answer in zip(places, answers, strict=True):
            committed = None if answer is None else _offset(name, topic, partition, *answer)
            if committed is not None:
                offsets.setdefault(name, {})[topic, partition] = committed
        return offsets

    def _put(
        self, transaction: TransactionRequest, contents: Mapping[str, bytes], parents: list[str]
    ) -> None:
        """Set or create nodes, and create missing parents, top down."""
        found = self._session.request_all(exists(path) for path in [*parents, *contents])
        there = {
            path
            for path, stat in zip([*parents, *contents], found, strict=True)
            if stat is not None
        }
        for path in parents:
            if path not in there:
                transaction.create(path, b"")
        for path, content in contents.items():
            if path in there:
                transaction.set_data(path, content)
            else:
                transaction.create(path, content)

    def _nodes_of(self, group_id: str) -> list[str]:
        """Return the existing nodes that `delete_group` removes, children first."""
        below = self._session.request_all([children(paths.group(group_id))])[0]
        if below is None:
            return []
        own = OWN_NODES & set(below)
        offsets, topics = self._offset_nodes(group_id)
        nodes = [*offsets, *topics, *(f"{paths.group(group_id)}/{name}" for name in sorted(own))]
        return nodes if set(below) - own else [*nodes, paths.group(group_id)]

    def _offset_nodes(self, group_id: str) -> tuple[list[str], list[str]]:
        """Return the nodes of a group's offsets, and their parents, the nodes of its topics."""
        names = self._session.request_all([children(paths.offsets(group_id))])[0] or []
        topics = [paths.topic_offsets(group_id, name) for name in names]
        parts = self._session.request_all(children(topic) for topic in topics)
        offsets = [
            f"{topic}/{each}"
            for topic, partitions in zip(topics, parts, strict=True)
            for each in partitions or ()
        ]
        return offsets, topics

    def _delete(self, group_id: str, existing: Callable[[], list[str]]) -> None:
        """Delete the nodes that `existing` returns, in as many transactions as needed."""
        is_done = False

        def build(transaction: TransactionRequest) -> None:
            nonlocal is_done
            nodes = existing()
            portion = list(_fit_in_transaction(nodes))
            is_done = len(portion) == len(nodes)
            for path in portion:
                transaction.delete(path)

        while not is_done:
            self._write(group_id, build)

    def _write(self, group_id: str, build: Callable[[TransactionRequest], None]) -> None:
        """Commit what `build` adds to a fenced transaction; rebuild it after a conflict.

        Raises:
            NotCoordinator: the fence has changed.
            GroupTooLarge: the change exceeds one transaction.
            RegistryUnavailable: ZooKeeper did not answer in time.
        """
        slot = coordination_slot(group_id)
        held = self._fence_of(slot)
        fence = self._loaded_under.get(slot, held)
        deadline = Deadline.after(REQUEST_S)
        while deadline.remaining_s > 0:
            transaction = self._session.transaction()
            transaction.check(paths.slot(slot), fence)
            build(transaction)
            try:
                self._session.commit(transaction, deadline)
            except BadVersionError:
                if fence == held:
                    self._on_refused(slot)
                raise NotCoordinator(f"coordination slot {slot} is another broker's") from None
            except (NodeExistsError, NoNodeError, NotEmptyError):
                continue  # another client created or removed a node meanwhile
            except RequestTooLarge as error:
                raise GroupTooLarge(f"group {group_id!r}: {error}") from None
            return
        raise RegistryUnavailable(f"too many concurrent changes of group {group_id!r}")


def _membership(group_id: str, content: bytes, stat: ZnodeStat) -> StoredMembership | None:
    try:
        return replace(parse_membership(json.loads(content)), stored_ms=stat.mtime)
    except ValueError as error:
        _log.warning("%s is not a valid membership: %s", paths.membership(group_id), error)
        return None


def _offset(
    group_id: str, topic: str, partition: int, content: bytes, stat: ZnodeStat
) -> CommittedOffset | None:
    try:
        return replace(parse_offset(content.decode()), committed_ms=stat.mtime)
    except ValueError as error:
        path = paths.offset(group_id, topic, partition)
        _log.warning("%s is not a valid offset: %s", path, error)
        return None


def _fit_in_transaction(nodes: Iterable[str]) -> Iterator[str]:
    """Return as many of the nodes as one transaction can delete."""
    size = DELETE_BYTES
    for path in nodes:
        size += len(path) + DELETE_BYTES
        if size > REQUEST_BYTES_MAX:
            return
        yield path
