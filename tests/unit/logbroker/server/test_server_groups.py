"""A group coordinator whose registry is slow, fails, or reassigns its slots."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest

from logbroker.config import BrokerConfig
from logbroker.errors import NotCoordinator, RegistryUnavailable, RequestRefused
from logbroker.groups.messages import Commit, MemberIdentity
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.registry.cluster import BrokerEndpoint, ClusterView, coordination_slot
from logbroker.registry.local.registry import LocalRegistry
from logbroker.server.groups import coordination_slot as slot_module
from logbroker.server.groups import coordinator as coordinator_module
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from tests.support.processes.waiting import DEADLINE_S, until

T = TypeVar("T")

EVENTS = ("events", 0)
WITHOUT_MEMBER = Commit(MemberIdentity(""), -1)
GROUP = "readers"
SLOT = coordination_slot(GROUP)


class TroubledRegistry(LocalRegistry):
    """The real one, as slow and as unreliable as a test wants it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.is_open = threading.Event()
        self.is_open.set()
        self.failures: list[RequestRefused] = []
        self.load_failures: list[RequestRefused] = []
        self.writes = 0
        self.loads = 0
        self.offset_deletions = 0
        self.is_heard_of = True
        self.has_paper_nodes = False

    def has_paper_consumers(self, _group_id: str, /) -> bool:
        return self.has_paper_nodes

    def may_coordinate(self) -> bool:
        return self.is_heard_of

    def load_groups(self, slot: int) -> list[StoredGroup]:
        if slot == SLOT:
            self.loads += 1
            if self.load_failures:
                raise self.load_failures.pop()
        return super().load_groups(slot)

    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition]) -> None:
        self.offset_deletions += 1
        super().delete_offsets(group_id, places)

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        self.writes += 1
        assert self.is_open.wait(DEADLINE_S)
        if self.failures:
            raise self.failures.pop()
        super().commit_offsets(group_id, offsets)


class CoordinatorHarness:
    """Runs a coordinator on its loop's thread and collects the responses."""

    def __init__(self, folder: Path) -> None:
        opened = TroubledRegistry.open(folder, 0)
        assert isinstance(opened, TroubledRegistry)
        self.registry = opened
        self.loop = SocketLoop()
        views: list[ClusterView] = []
        self.registry.join(BrokerEndpoint(0, "127.0.0.1", 9092), views.append)
        self.registry.create_topic("events", [[0], [0]], {})
        self.view = views[-1]
        nothing = replace(self.view, coordinators={})
        config = BrokerConfig(folder)
        self.coordinator = GroupCoordinator(config, self.registry, self.loop, Counters(), nothing)
        self._thread = threading.Thread(target=self.loop.run, args=(lambda: None,))
        self._thread.start()

    def close(self) -> None:
        self.registry.is_open.set()
        self.do(self.coordinator.close)
        self.do(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def do(self, call: Callable[[], T]) -> T:
        """What `call` gives on the loop's thread."""
        result: SimpleQueue[T] = SimpleQueue()
        self.loop.call_soon(lambda: result.put(call()))
        return result.get(timeout=DEADLINE_S)

    def follow(self, *, ours: bool) -> None:
        view = self.view if ours else replace(self.view, coordinators={})
        self.do(lambda: self.coordinator.apply_view(view))

    def commit(
        self, offset: int, place: TopicPartition = EVENTS, committed_ms: int = 0
    ) -> list[str | None]:
        """Where the answer to a commit will be: none, or the error's name."""
        answers: list[str | None] = []

        def done(refusal: RequestRefused | None) -> None:
            answers.append(None if refusal is None else type(refusal).__name__)

        offsets = {place: CommittedOffset(offset, committed_ms=committed_ms)}
        self.do(lambda: self.coordinator.commit(GROUP, WITHOUT_MEMBER, offsets, done))
        return answers

    def fetch(self) -> list[dict[TopicPartition, int] | str]:
        """Where the answer to a fetch will be: the offsets, or the error's name."""
        answers: list[dict[TopicPartition, int] | str] = []

        def found(result: Mapping[TopicPartition, CommittedOffset] | RequestRefused) -> None:
            if isinstance(result, RequestRefused):
                answers.append(type(result).__name__)
            else:
                answers.append({place: each.offset for place, each in result.items()})

        self.do(lambda: self.coordinator.fetch_offsets(GROUP, found))
        return answers

    def until_fetched(self, expected: dict[TopicPartition, int]) -> None:
        def is_so() -> bool:
            answers = self.fetch()
            until(lambda: bool(answers), "an answer")
            return answers == [expected]

        until(is_so, f"{expected} is fetched")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CoordinatorHarness]:
    harness = CoordinatorHarness(tmp_path)
    harness.follow(ours=True)
    harness.until_fetched({})
    yield harness
    harness.close()


def test_an_offset_is_fetched_only_once_it_is_durable(harness: CoordinatorHarness) -> None:
    harness.registry.is_open.clear()
    committed = harness.commit(5)
    until(lambda: harness.registry.writes == 1, "it is being written")
    fetched = harness.fetch()
    assert (committed, fetched) == ([], [])
    harness.registry.is_open.set()
    until(lambda: bool(fetched), "the fetch is answered")
    assert (committed, fetched) == ([None], [{EVENTS: 5}])


def test_queued_commits_are_written_together(harness: CoordinatorHarness) -> None:
    harness.registry.is_open.clear()
    answers = [harness.commit(offset) for offset in range(100)]
    answers.append(harness.commit(7, ("events", 1)))
    harness.registry.is_open.set()
    harness.until_fetched({EVENTS: 99, ("events", 1): 7})
    assert answers == 101 * [[None]]
    assert harness.registry.writes == 2


def test_a_fetch_between_two_commits_sees_only_the_first(harness: CoordinatorHarness) -> None:
    harness.registry.is_open.clear()
    harness.commit(1)
    harness.commit(2)
    between = harness.fetch()
    harness.commit(3)
    harness.registry.is_open.set()
    harness.until_fetched({EVENTS: 3})
    assert between == [{EVENTS: 2}]
    assert harness.registry.writes == 3


def test_a_failed_commit_is_not_visible(harness: CoordinatorHarness) -> None:
    harness.registry.failures = [RegistryUnavailable("gone")]
    answer = harness.commit(5)
    until(lambda: bool(answer), "it is answered")
    # No client of a group knows a registry.
    assert answer == ["CoordinatorNotAvailable"]
    assert harness.fetch() == [{}]


def test_queued_writes_are_cancelled_when_the_slot_is_lost(harness: CoordinatorHarness) -> None:
    harness.registry.is_open.clear()
    begun, waiting = harness.commit(5), harness.commit(6)
    until(lambda: harness.registry.writes == 1, "the first is being written")
    harness.follow(ours=False)
    assert waiting == ["NotCoordinator"]
    assert harness.fetch() == ["NotCoordinator"]
    harness.registry.is_open.set()
    until(lambda: bool(begun), "the first has ended")
    assert begun == [None]
    assert harness.registry.writes == 1


def test_a_reacquired_slot_is_loaded_after_the_last_write_has_ended(
    harness: CoordinatorHarness,
) -> None:
    harness.registry.is_open.clear()
    harness.commit(5)
    until(lambda: harness.registry.writes == 1, "it is being written")
    harness.follow(ours=False)
    harness.follow(ours=True)
    assert harness.fetch() == ["CoordinatorLoading"]
    assert harness.registry.loads == 1
    harness.registry.is_open.set()
    harness.until_fetched({EVENTS: 5})
    assert harness.registry.loads == 2


def test_a_rejected_write_reloads_the_slot(harness: CoordinatorHarness) -> None:
    harness.commit(5)
    harness.until_fetched({EVENTS: 5})
    harness.registry.failures = [NotCoordinator("somebody had it")]
    answer = harness.commit(6)
    until(lambda: bool(answer), "it is answered")
    assert answer == ["NotCoordinator"]
    harness.until_fetched({EVENTS: 5})
    assert harness.registry.loads == 2


def test_a_failed_load_of_a_slot_is_retried(tmp_path: Path) -> None:
    harness = CoordinatorHarness(tmp_path)
    harness.registry.load_failures = [NotCoordinator("not yet"), RegistryUnavailable("silent")]
    harness.follow(ours=True)
    harness.until_fetched({})
    assert harness.registry.loads == 3
    harness.close()


def test_groups_are_not_described_while_the_registry_does_not_respond(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(5)
    harness.until_fetched({EVENTS: 5})
    harness.registry.is_heard_of = False
    assert harness.fetch() == ["CoordinatorNotAvailable"]
    assert harness.commit(6) == ["CoordinatorNotAvailable"]
    groups, refusal = harness.do(harness.coordinator.list_all)
    assert (groups, type(refusal).__name__) == ([], "CoordinatorNotAvailable")
    harness.registry.is_heard_of = True
    harness.until_fetched({EVENTS: 5})


def test_offsets_of_topics_deleted_while_no_broker_owned_the_slot_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "ORPHANS_AFTER_S", 0.0)
    harness = CoordinatorHarness(tmp_path)
    gone = ("gone", 0)
    harness.registry.commit_offsets(GROUP, {EVENTS: CommittedOffset(1), gone: CommittedOffset(2)})
    harness.follow(ours=True)
    harness.until_fetched({EVENTS: 1})
    (stored,) = harness.registry.load_groups(SLOT)
    assert stored.offsets == {EVENTS: CommittedOffset(1)}
    harness.close()


def test_an_empty_group_is_removed_from_memory(harness: CoordinatorHarness) -> None:
    harness.registry.failures = [RegistryUnavailable("gone")]
    answer = harness.commit(5)
    until(lambda: bool(answer), "it is answered")
    assert harness.do(harness.coordinator.list_all) == ([], None)


def test_offsets_expire_and_a_group_without_any_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "EXPIRY_CHECK_S", 0.1)
    harness = CoordinatorHarness(tmp_path)
    harness.follow(ours=True)
    harness.until_fetched({})
    harness.commit(5)
    harness.commit(6, ("events", 1), committed_ms=harness.loop.now_ms)
    harness.until_fetched({EVENTS: 5, ("events", 1): 6})
    harness.do(harness.coordinator.start)
    harness.until_fetched({("events", 1): 6})
    (stored,) = harness.registry.load_groups(SLOT)
    assert stored.offsets == {("events", 1): CommittedOffset(6)}
    harness.commit(7, ("events", 1), committed_ms=0)
    until(lambda: not harness.registry.load_groups(SLOT), "the group is deleted")
    assert harness.do(harness.coordinator.list_all) == ([], None)
    harness.close()


def test_a_group_that_everybody_left_expires(harness: CoordinatorHarness) -> None:
    left = StoredMembership(3, "consumer", None, None, (), stored_ms=1_000)
    harness.follow(ours=False)
    harness.registry.store_membership(GROUP, left)
    harness.registry.commit_offsets(GROUP, {EVENTS: CommittedOffset(5)})
    harness.follow(ours=True)
    harness.until_fetched({EVENTS: 5})
    slot = harness.coordinator._slots[SLOT]
    harness.do(lambda: slot.expire_offsets(1_000))
    harness.until_fetched({EVENTS: 5})
    harness.do(lambda: slot.expire_offsets(1_001))
    harness.until_fetched({})
    until(lambda: not harness.registry.load_groups(SLOT), "the group is deleted")


def test_a_group_that_nobody_joined_expires_as_a_whole(harness: CoordinatorHarness) -> None:
    harness.commit(5)
    harness.until_fetched({EVENTS: 5})
    harness.do(lambda: harness.coordinator._slots[SLOT].expire_offsets(1_000))
    harness.until_fetched({})
    assert harness.registry.load_groups(SLOT) == []
    # Deleting its offsets would leave a group without state in ZooKeeper.
    assert harness.registry.offset_deletions == 0


def test_offsets_of_the_papers_consumers_do_not_expire(harness: CoordinatorHarness) -> None:
    harness.registry.has_paper_nodes = True
    harness.commit(5)
    harness.until_fetched({EVENTS: 5})
    harness.do(lambda: harness.coordinator._slots[SLOT].expire_offsets(1_000))
    harness.until_fetched({EVENTS: 5})
