"""Every error that logbroker raises on purpose, grouped by what the one who meets it can do.

LogbrokerError
├── ConfigurationError           the operator changes a setting and starts again
├── DataDirectoryInUse           the operator stops the other process
├── ProtocolViolation            the peer's bytes make no sense: its connection is closed
│   ├── FrameTooLarge
│   ├── MalformedRequest
│   └── UnsupportedRequest
└── RequestRefused               answered with an error code (the table in `wire.error_codes`)
    ├── StorageFailed            send it again once the disk is well
    ├── CorruptBatch             send it again
    ├── RegistryUnavailable      send it again once ZooKeeper answers
    ├── FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicId, FetchSessionNotFound,
    │   NotLeaderOrFollower, LeaderNotAvailable
    │                            ask for metadata again
    ├── CoordinatorNotAvailable, CoordinatorLoading, NotCoordinator
    │                            find the group's coordinator again
    ├── UnknownMember, IllegalGeneration, RebalanceInProgress, MemberIdRequired,
    │   FencedInstance           join the group again, or stop: another has the member's place
    ├── OutOfOrderSequence, InvalidProducerEpoch
    │                            the idempotent producer starts anew
    ├── OffsetOutOfRange         seek to an offset that is there
    └── the rest                 mend the request
"""

from collections.abc import Iterable


class LogbrokerError(Exception):
    """The root: nothing raises it as such."""


class ConfigurationError(LogbrokerError):
    """Settings are missing, malformed or contradict each other; the message lists all."""

    @classmethod
    def raise_if_any(cls, problems: Iterable[str]) -> None:
        """Raise one error that lists all `problems`, if there are any."""
        found = list(problems)
        if found:
            raise cls("; ".join(found))


class DataDirectoryInUse(LogbrokerError):
    """Another process holds the lock of the data directory."""


class ProtocolViolation(LogbrokerError):
    """The peer sent bytes that are no request; nothing but closing its connection helps."""


class FrameTooLarge(ProtocolViolation):
    """A frame announces more bytes than `request_bytes_max`, or fewer than a header has."""


class MalformedRequest(ProtocolViolation):
    """A frame of a known API does not parse."""


class UnsupportedRequest(ProtocolViolation):
    """An API key or version that this broker does not serve."""


class RequestRefused(LogbrokerError):
    """The request is understood and answered with an error code; the connection goes on."""


class CorruptBatch(RequestRefused):
    """A batch is cut, or its CRC-32C does not match its bytes."""


class InvalidRecord(RequestRefused):
    """A batch breaks a rule of the format that its CRC cannot see."""


class InvalidTimestamp(RequestRefused):
    """A timestamp lies outside what the topic allows."""


class MessageTooLarge(RequestRefused):
    """A batch is larger than the topic's `max.message.bytes`."""


class RecordListTooLarge(RequestRefused):
    """A batch is larger than the topic's `segment.bytes`."""


class UnsupportedForMessageFormat(RequestRefused):
    """A batch is of magic 0 or 1; only RecordBatch v2 is stored."""


class UnsupportedCompression(RequestRefused):
    """A batch names a codec that does not exist, or one its API version may not carry."""


class OutOfOrderSequence(RequestRefused):
    """An idempotent producer skipped sequence numbers."""


class InvalidProducerEpoch(RequestRefused):
    """A newer epoch of this producer id has written already."""


class OffsetOutOfRange(RequestRefused):
    """An offset before the log start offset or after the log end offset."""


class StorageFailed(RequestRefused):
    """The disk refused a write or a flush; what was not acknowledged was undone."""


class RequestTimedOut(RequestRefused):
    """The flush that `acks=all` waits for took longer than the client gave it."""


class UnknownTopicOrPartition(RequestRefused):
    """No such topic, or no such partition of it."""


class UnknownTopicId(RequestRefused):
    """No topic has this id (it may have been deleted and created again)."""


class InvalidTopic(RequestRefused):
    """A topic name that Kafka would not take."""


class TopicAlreadyExists(RequestRefused):
    """A topic of this name is there already."""


class InvalidPartitions(RequestRefused):
    """A partition count below one, above the limit, or below the present count."""


class InvalidReplicationFactor(RequestRefused):
    """More replicas than live brokers."""


class InvalidReplicaAssignment(RequestRefused):
    """A manual assignment that names brokers which are not there, or leaves gaps."""


class InvalidConfig(RequestRefused):
    """A topic setting that is unknown, or whose value is out of range."""


class InvalidRequiredAcks(RequestRefused):
    """A produce request whose `acks` is none of 0, 1 and -1."""


class InvalidRequest(RequestRefused):
    """A request that contradicts itself."""


class UnsupportedVersion(RequestRefused):
    """A value that this version of the API does not know."""


class FencedLeaderEpoch(RequestRefused):
    """The client's view of the partition's leader is older than the broker's."""


class UnknownLeaderEpoch(RequestRefused):
    """The client's view of the partition's leader is newer than the broker's."""


class FetchSessionNotFound(RequestRefused):
    """An incremental fetch names a session; this broker keeps none (KIP-227, sessionless)."""


class RegistryUnavailable(RequestRefused):
    """ZooKeeper did not answer in time; the change may have been made or not."""


class NotLeaderOrFollower(RequestRefused):
    """The partition is another broker's, or this one leads nothing at present."""


class LeaderNotAvailable(RequestRefused):
    """The broker that keeps the partition is not in the cluster at present."""


class CoordinatorNotAvailable(RequestRefused):
    """Nobody looks after the group at present, or ZooKeeper cannot be reached."""


class CoordinatorLoading(RequestRefused):
    """The broker has just taken over the group and is still reading what is stored of it."""


class NotCoordinator(RequestRefused):
    """The group is another broker's to look after."""


class InvalidGroupId(RequestRefused):
    """A group's name that is empty or too long."""


class UnknownMember(RequestRefused):
    """The group has no member of this id (any more)."""


class IllegalGeneration(RequestRefused):
    """The member's generation is not the group's present one."""


class RebalanceInProgress(RequestRefused):
    """The group forms a new generation, which the member has to join."""


class InconsistentGroupProtocol(RequestRefused):
    """The member shares no protocol, or not the protocol type, with the others."""


class InvalidSessionTimeout(RequestRefused):
    """A session timeout outside what this broker allows."""


class MemberIdRequired(RequestRefused):
    """A new member is given its id first and joins with it then (KIP-394)."""


class FencedInstance(RequestRefused):
    """Another member has taken this static instance's place (KIP-345)."""


class GroupTooLarge(RequestRefused):
    """The group has as many members, or as much of them to remember, as is allowed."""


class GroupNotEmpty(RequestRefused):
    """The group has members; only one without can be deleted."""


class UnknownGroup(RequestRefused):
    """There is no group of this name."""


class GroupSubscribed(RequestRefused):
    """The group reads this topic at present, so its offsets cannot be deleted."""


class OffsetMetadataTooLarge(RequestRefused):
    """The note that goes with a committed offset is longer than allowed."""
