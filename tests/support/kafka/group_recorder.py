"""Records what group members own and read, and checks that no two own a partition.

Each member is a process, so that it can be killed; it notes what it does with the time of the
monotonic clock, which all processes of a machine share.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Producer

from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

MEMBER = "tests.support.kafka.group_member"

SESSION_TIMEOUT_MS = 30_000
"""A session timeout that members keep on a busy machine."""

Place = tuple[str, int]


class Ownership(NamedTuple):
    """The time for which a member owned a partition. Unbounded if it still owns it."""

    start_s: float
    end_s: float
    member: str


class GroupMember(ServerProcess):
    """The process of a present or former member. `name` is its client id."""

    def __init__(self, name: str, folder: Path, options: dict[str, Any]) -> None:
        self.name = name
        self._notes = folder / f"{name}.notes"
        self._ended_s = math.inf
        options = {"name": name, "notes": str(self._notes), **options}
        super().__init__(["-m", MEMBER, json.dumps(options)], folder / f"{name}.log")

    def kill(self) -> None:
        super().kill()
        self._ended_s = min(self._ended_s, time.monotonic())

    def leave(self) -> None:
        """Close the consumer and wait for the process to end."""
        assert self.stop() == 0, self.output
        self._ended_s = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self._ended_s == math.inf

    @property
    def notes(self) -> list[dict[str, Any]]:
        """Return the recorded actions, oldest first, without an incomplete last line."""
        if not self._notes.exists():
            return []
        lines = self._notes.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    @property
    def values(self) -> list[str]:
        """Return all values that the member read, in order."""
        return [note["value"] for note in self.notes if note["kind"] == "read"]

    @property
    def assignments(self) -> int:
        """Return the number of assignments."""
        return sum(note["kind"] == "assigned" for note in self.notes)

    def has_now(self) -> list[Place]:
        """Return the member's partitions if it runs."""
        times = self.ownerships().items() if self.is_running else ()
        return sorted(place for place, each in times if each[-1].end_s == math.inf)

    def ownerships(self) -> dict[Place, list[Ownership]]:
        """Return the times for which the member owned each partition."""
        found: dict[Place, list[Ownership]] = defaultdict(list)
        since: dict[Place, float] = {}
        for note in self.notes:
            if note["kind"] == "assigned":
                for place in note["partitions"]:
                    # A client that keeps a partition gets it in the next assignment again.
                    since.setdefault(tuple(place), note["at_s"])
            elif note["kind"] in ("given up", "closing"):
                gone = since if note["kind"] == "closing" else map(tuple, note["partitions"])
                for place in list(gone):
                    start_s = since.pop(place, None)
                    if start_s is not None:
                        found[place].append(Ownership(start_s, note["at_s"], self.name))
        for place, start_s in since.items():
            found[place].append(Ownership(start_s, self._ended_s, self.name))
        return found


class GroupRecorder:
    """All members of one group, of any stock library, also former ones.

    A context manager: at its end every member is killed.
    """

    def __init__(self, folder: Path, bootstrap_servers: str, group: str = "readers") -> None:
        self.members: dict[str, GroupMember] = {}
        self.group = group
        self.bootstrap_servers = bootstrap_servers
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self.members.values():
            member.__exit__(*error)

    def member(
        self,
        library: str,
        name: str | None = None,
        *,
        topics: Collection[str] = ("events",),
        pattern: str | None = None,
        assignor: str = "range",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        instance_id: str | None = None,
    ) -> GroupMember:
        """Start another member without waiting until it has joined."""
        name = name or f"{library}-{len(self.members)}"
        options = {
            "library": library,
            "bootstrap_servers": self.bootstrap_servers,
            "group": self.group,
            "topics": list(topics),
            "pattern": pattern,
            "assignor": assignor,
            "session_timeout_ms": session_timeout_ms,
            "instance_id": instance_id,
        }
        member = GroupMember(name, self._folder, options)
        self.members[name] = member
        member.launch()
        return member

    def owners(self) -> dict[Place, set[str]]:
        """Return the running owner of each partition."""
        found: dict[Place, set[str]] = defaultdict(set)
        for member in self.members.values():
            for place in member.has_now():
                found[place].add(member.name)
        return found

    def until_shared(self, places: Collection[Place], *members: GroupMember) -> None:
        """Wait until these members own exactly these partitions, and each owns at least one."""
        names = {member.name for member in members}

        def is_shared() -> bool:
            owners = self.owners()
            return (
                owners.keys() == set(places)
                and all(len(each) == 1 for each in owners.values())
                and set.union(*owners.values()) == names
            )

        self._until(is_shared, f"{sorted(names)} share {sorted(places)}")

    def until_read(self, values: Iterable[str]) -> None:
        """Wait until some member has read each of these values."""
        wanted = set(values)
        self._until(lambda: wanted <= self.read_values(), f"{len(wanted)} values are read")

    def read_values(self) -> set[str]:
        return {value for member in self.members.values() for value in member.values}

    def check(self) -> None:
        """Assert that partitions had one owner at a time, and that only owners read them."""
        everything: dict[Place, list[Ownership]] = defaultdict(list)
        for member in self.members.values():
            own = member.ownerships()
            for place, ownerships in own.items():
                everything[place] += ownerships
            for note in member.notes:
                if note["kind"] == "read":
                    times = own.get(tuple(note["place"]), [])
                    is_owned = any(each.start_s <= note["at_s"] <= each.end_s for each in times)
                    assert is_owned, f"{member.name} read without owning: {note}; owned {times}"
        for place, ownerships in everything.items():
            ownerships.sort()
            for former, later in pairwise(ownerships):
                assert former.end_s <= later.start_s, f"{place} has two owners: {former}, {later}"

    def _until(self, condition: Any, what: str) -> None:
        try:
            until(condition, what)
        except AssertionError as failure:
            said = "\n".join(f"{m.name}: {m.output[-2000:]}" for m in self.members.values())
            raise AssertionError(f"{failure}; owners are {self.owners()}\n{said}") from None


def send(bootstrap_servers: str, topic: str, values: Iterable[str], partitions: int) -> None:
    """Send values to all partitions in turn with acks=all."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    errors: list[Any] = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not any(errors), errors
