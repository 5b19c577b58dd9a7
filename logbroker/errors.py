"""Errors of logbroker, grouped by what the caller can do.

LogbrokerError ├── ConfigurationError           the operator changes a setting and restarts ├──
DataDirectoryInUse           the operator stops the other process ├── ProtocolViolation
the peer sent invalid bytes: its connection is closed │   ├── FrameTooLarge │   ├── MalformedRequest
│   └── UnsupportedRequest └── RequestRefused               answered with an error code (the table
in `wire.error_codes`)
    ├── StorageFailed            retry when the disk works again
    ├── CorruptBatch             retry
    ├── RegistryUnavailable      retry when ZooKeeper answers again
    ├── FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicId, FetchSessionNotFound,
    │   NotLeaderOrFollower, LeaderNotAvailable
    │                            refresh the metadata, then retry
    ├── CoordinatorNotAvailable, CoordinatorLoading, NotCoordinator
    │                            find the group coordinator, then retry
    ├── UnknownMember, IllegalGeneration, RebalanceInProgress, MemberIdRequired,
    │   FencedInstance           rejoin the group, or stop if another member replaced this one
    ├── OutOfOrderSequence, InvalidProducerEpoch
    │                            request a new producer id
    ├── OffsetOutOfRange         seek to an existing offset
    ├── TopicAuthorizationFailed, GroupAuthorizationFailed, ClusterAuthorizationFailed,
    │   TransactionalIdAuthorizationFailed
    │                            an administrator adds an ACL
    └── all others               correct the request
LogbrokerError └── LargeBatch     internal: the caller validates the batch on another thread
"""

from collections.abc import Iterable, Sequence

RecordError = tuple[int, str]
"""Why one record of a batch is rejected: the index of the record in the batch, and a message."""


class LogbrokerError(Exception):
    """Base class of all errors of logbroker; never raised itself."""


class ConfigurationError(LogbrokerError):
    """Settings are missing, malformed or contradictory; the message lists every problem."""

    @classmethod
    def raise_if_any(cls, problems: Iterable[str]) -> None:
        """Raise one error with all `problems`; return if there are none."""
        found = list(problems)
        if found:
            raise cls("; ".join(found))


class DataDirectoryInUse(LogbrokerError):
    """Another process holds the lock of the data directory."""


class ProtocolViolation(LogbrokerError):
    """The peer sent bytes that are not a valid request; its connection is closed."""


class FrameTooLarge(ProtocolViolation):
    """A frame announces more bytes than `request_bytes_max`, or fewer than a header has."""


class MalformedRequest(ProtocolViolation):
    """A frame of a known API cannot be parsed."""


class UnsupportedRequest(ProtocolViolation):
    """The broker does not serve the API key or version of a request."""


class RequestRefused(LogbrokerError):
    """A valid request that is answered with an error code; the connection stays open."""


class CorruptBatch(RequestRefused):
    """A batch is truncated, or its CRC-32C does not match its bytes."""


class LargeBatch(LogbrokerError):
    """Validating the records of a batch takes longer than the event loop may be held."""


class InvalidRecord(RequestRefused):
    """A batch violates a rule of the format that its CRC does not cover."""

    def __init__(self, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidTimestamp(RequestRefused):
    """A timestamp is outside the range that the topic allows."""

    def __init__(self, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class MessageTooLarge(RequestRefused):
    """A batch is larger than the topic's `max.message.bytes`."""


class RecordListTooLarge(RequestRefused):
    """A batch is larger than the topic's `segment.bytes`."""


class UnsupportedForMessageFormat(RequestRefused):
    """A batch has message format 0 or 1; only RecordBatch v2 is stored."""


class UnsupportedCompression(RequestRefused):
    """A batch names an unknown codec, or one that its API version does not allow."""


class OutOfOrderSequence(RequestRefused):
    """An idempotent producer skipped sequence numbers."""


class InvalidProducerEpoch(RequestRefused):
    """A newer epoch of the producer id has already written."""


class OffsetOutOfRange(RequestRefused):
    """An offset is below the log start offset or above the log end offset."""


class StorageFailed(RequestRefused):
    """A write or flush failed on the disk; data that was not acknowledged is rolled back."""


class RequestTimedOut(RequestRefused):
    """The flush for `acks=all` took longer than the request's timeout."""


class UnknownTopicOrPartition(RequestRefused):
    """The topic or the partition does not exist."""


class UnknownTopicId(RequestRefused):
    """No topic has this id; it may have been deleted and created again."""


class InvalidTopic(RequestRefused):
    """The topic name violates Kafka's rules."""


class TopicAlreadyExists(RequestRefused):
    """A topic with this name exists."""


class InvalidPartitions(RequestRefused):
    """A partition count is below 1, above the limit, or below the current count."""


class InvalidReplicationFactor(RequestRefused):
    """The replication factor exceeds the number of live brokers."""


class InvalidReplicaAssignment(RequestRefused):
    """A manual assignment names unknown brokers or skips partitions."""


class InvalidConfig(RequestRefused):
    """A topic setting is unknown, or its value is out of range."""


class InvalidRequiredAcks(RequestRefused):
    """A Produce request has `acks` other than 0, 1 and -1."""


class InvalidRequest(RequestRefused):
    """The fields of a request contradict each other."""


class UnsupportedVersion(RequestRefused):
    """A value is not defined in this version of the API."""


class FencedLeaderEpoch(RequestRefused):
    """The client's leader epoch is older than the broker's."""


class UnknownLeaderEpoch(RequestRefused):
    """The client's leader epoch is newer than the broker's."""


class FetchSessionNotFound(RequestRefused):
    """An incremental fetch names a session; this broker keeps no sessions (KIP-227)."""


class RegistryUnavailable(RequestRefused):
    """ZooKeeper did not answer in time; a change may have been made or not."""


class NotLeaderOrFollower(RequestRefused):
    """Another broker leads the partition, or this broker is not in the cluster now."""


class LeaderNotAvailable(RequestRefused):
    """The broker that stores the partition is not in the cluster now."""


class CoordinatorNotAvailable(RequestRefused):
    """The group has no coordinator now, or ZooKeeper is unreachable."""


class CoordinatorLoading(RequestRefused):
    """The broker is still loading the group's stored state."""


class NotCoordinator(RequestRefused):
    """Another broker coordinates the group."""


class InvalidGroupId(RequestRefused):
    """The group id is empty or too long."""


class UnknownMember(RequestRefused):
    """The group has no member with this id."""


class IllegalGeneration(RequestRefused):
    """The member's generation is not the group's current generation."""


class RebalanceInProgress(RequestRefused):
    """The group is rebalancing; the member must join the new generation."""


class InconsistentGroupProtocol(RequestRefused):
    """The member's protocol type or protocols do not match those of the group."""


class InvalidSessionTimeout(RequestRefused):
    """The session timeout is outside the broker's limits."""


class MemberIdRequired(RequestRefused):
    """A new member receives its id first and must join again with it (KIP-394)."""


class FencedInstance(RequestRefused):
    """Another member uses the same static instance id (KIP-345)."""


class GroupTooLarge(RequestRefused):
    """The group exceeds the limit of members, or of stored bytes."""


class GroupNotEmpty(RequestRefused):
    """The group has members; only an empty group can be deleted."""


class UnknownGroup(RequestRefused):
    """The group does not exist."""


class GroupSubscribed(RequestRefused):
    """The group is subscribed to the topic, so its offsets cannot be deleted."""


class TopicAuthorizationFailed(RequestRefused):
    """The principal may not do this with the topic."""


class GroupAuthorizationFailed(RequestRefused):
    """The principal may not do this with the consumer group."""


class ClusterAuthorizationFailed(RequestRefused):
    """The principal may not do this with the cluster."""


class TransactionalIdAuthorizationFailed(RequestRefused):
    """The principal may not use the transactional id."""


class SecurityDisabled(RequestRefused):
    """The broker has no authorizer, so it stores no access control lists."""


class UnsupportedSaslMechanism(RequestRefused):
    """The broker does not know the SASL mechanism."""


class ResourceNotFound(RequestRefused):
    """The named resource, such as a user's credential, does not exist."""


class DuplicateResource(RequestRefused):
    """A request names one resource more than once."""


class UnacceptableCredential(RequestRefused):
    """A credential has a value that the broker does not store."""


class ThrottlingQuotaExceeded(RequestRefused):
    """The client has changed more partitions than its quota allows; it may retry later."""


class OffsetMetadataTooLarge(RequestRefused):
    """The metadata of a committed offset is longer than allowed."""
