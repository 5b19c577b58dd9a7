"""Members of a group report what they deliver, and stay silent once they are killed."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.group_member import Members, Subscription, group_members
from tests.support.processes.waiting import until

PACE_S = 0.005
"""Members would else deliver faster than one process can listen."""

NOWHERE = Subscription("", "", "group", "topic")


@dataclass(frozen=True)
class TwoPartitions:
    """Delivers from two partitions by turns, without a broker."""

    def __call__(self, of: Subscription) -> Iterator[int]:
        assert of == NOWHERE
        while True:
            yield from (3, 5)
            time.sleep(PACE_S)


def test_every_partition_has_its_newest_delivery_and_a_member_its_share() -> None:
    with group_members(2, TwoPartitions(), NOWHERE) as members:
        until(lambda: members.note() and len(members.last) == 2, "both partitions are delivered")
        assert sum(members.shares()) == 2
        newest = {partition: each.time_s for partition, each in members.last.items()}
        until(
            lambda: members.note() and all(members.last[n].time_s > newest[n] for n in newest),
            "deliveries continue",
        )


def test_a_killed_member_delivers_nothing_more_and_others_do() -> None:
    with group_members(2, TwoPartitions(), NOWHERE) as members:
        until(lambda: _heard(members) == {0, 1}, "both members deliver")
        members.kill(0)
        until(lambda: _heard(members) == {1}, "what the dead one had sent is read")
        until(lambda: _heard(members) == {1}, "the other member continues")


def _heard(members: Members) -> set[int]:
    return {each.member for each in members.note()}
