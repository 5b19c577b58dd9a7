"""Members of a group report their deliveries, and none after they are killed."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.group_member import Members, Subscription, group_members
from tests.support.processes.waiting import until

PERIOD_S = 0.005
"""Without a pause, members deliver faster than one process can read."""

NOWHERE = Subscription("", "", "group", "topic")


@dataclass(frozen=True)
class TwoPartitions:
    """Delivers from two partitions by turns, without a broker."""

    def __call__(self, of: Subscription) -> Iterator[int]:
        assert of == NOWHERE
        while True:
            yield from (3, 5)
            time.sleep(PERIOD_S)


def test_every_partition_has_its_newest_delivery_and_a_member_its_share() -> None:
    with group_members(2, TwoPartitions(), NOWHERE) as members:
        until(lambda: members.poll() and len(members.last) == 2, "both partitions are delivered")
        assert sum(members.shares()) == 2
        newest = {partition: each.time_s for partition, each in members.last.items()}
        until(
            lambda: members.poll() and all(members.last[n].time_s > newest[n] for n in newest),
            "deliveries continue",
        )


def test_a_killed_member_delivers_nothing_more_and_others_do() -> None:
    with group_members(2, TwoPartitions(), NOWHERE) as members:
        until(lambda: _members_that_delivered(members) == {0, 1}, "both members deliver")
        members.kill(0)
        until(
            lambda: _members_that_delivered(members) == {1},
            "the killed member's deliveries are read",
        )
        until(lambda: _members_that_delivered(members) == {1}, "the other member continues")


def _members_that_delivered(members: Members) -> set[int]:
    return {each.member for each in members.poll()}
