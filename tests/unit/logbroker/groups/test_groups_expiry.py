from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from logbroker.groups.stored import CommittedOffset
from tests.unit.logbroker.groups.group_harness import GroupHarness

BEFORE_MS = 1_000_000
OLD, NEW = BEFORE_MS - 1, BEFORE_MS
OFFSETS = {
    ("read", 0): CommittedOffset(1, committed_ms=OLD),
    ("other", 0): CommittedOffset(2, committed_ms=OLD),
    ("other", 1): CommittedOffset(3, committed_ms=NEW),
}


def reading(*topics: str) -> tuple[tuple[str, bytes], ...]:
    message = ConsumerProtocolSubscription(version=1, topics=list(topics))
    return (("range", bytes(message.encode())),)


def expired(harness: GroupHarness, emptied_ms: int = 0) -> list[tuple[str, int]]:
    return harness.group.expired_offsets(OFFSETS, emptied_ms, BEFORE_MS)


def test_offsets_of_a_group_without_members_expire_after_their_commit() -> None:
    assert expired(GroupHarness()) == [("read", 0), ("other", 0)]


def test_offsets_of_a_group_expire_after_its_last_member_has_left() -> None:
    harness = GroupHarness()
    (member,) = harness.stable(1, protocols=reading("read"))
    harness.leave(member)
    assert expired(harness, emptied_ms=NEW) == []
    assert expired(harness, emptied_ms=OLD) == [("read", 0), ("other", 0)]


def test_offsets_of_topics_without_subscription_expire() -> None:
    harness = GroupHarness()
    harness.stable(2, protocols=reading("read"))
    assert expired(harness) == [("other", 0)]


def test_no_offset_expires_during_a_rebalance() -> None:
    harness = GroupHarness()
    harness.stable(1, protocols=reading("read"))
    harness.join(protocols=reading("read"))
    assert expired(harness) == []


def test_no_offset_of_members_with_unknown_topics_expires() -> None:
    unreadable, connect = GroupHarness(), GroupHarness()
    unreadable.stable(1)
    connect.stable(1, protocol_type="connect", protocols=reading("read"))
    assert expired(unreadable) == expired(connect) == []
