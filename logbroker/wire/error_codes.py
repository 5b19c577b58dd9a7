"""The table of exceptions and their error codes in the protocol.

Source: Kafka protocol guide, "Error Codes".
"""

from typing import Final

from kafka.errors import for_code

from logbroker.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    CorruptBatch,
    DuplicateResource,
    FencedInstance,
    FencedLeaderEpoch,
    FetchSessionNotFound,
    GroupAuthorizationFailed,
    GroupNotEmpty,
    GroupSubscribed,
    GroupTooLarge,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidConfig,
    InvalidGroupId,
    InvalidPartitions,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidSessionTimeout,
    InvalidTimestamp,
    InvalidTopic,
    LeaderNotAvailable,
    MemberIdRequired,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    OffsetMetadataTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RebalanceInProgress,
    RecordListTooLarge,
    RegistryUnavailable,
    RequestRefused,
    RequestTimedOut,
    ResourceNotFound,
    SecurityDisabled,
    StorageFailed,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnacceptableCredential,
    UnknownGroup,
    UnknownLeaderEpoch,
    UnknownMember,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompression,
    UnsupportedForMessageFormat,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)

MESSAGE_CHARS_MAX: Final = 1024

NONE: Final = 0
COORDINATOR_NOT_AVAILABLE: Final = 15
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
SASL_AUTHENTICATION_FAILED: Final = 58

ERROR_CODES: Final[dict[type[RequestRefused], int]] = {
    OffsetOutOfRange: 1,
    CorruptBatch: 2,
    UnknownTopicOrPartition: 3,
    LeaderNotAvailable: 5,
    NotLeaderOrFollower: 6,
    RegistryUnavailable: 7,
    RequestTimedOut: 7,
    MessageTooLarge: 10,
    OffsetMetadataTooLarge: 12,
    CoordinatorLoading: 14,
    CoordinatorNotAvailable: 15,
    NotCoordinator: 16,
    InvalidTopic: 17,
    RecordListTooLarge: 18,
    InvalidRequiredAcks: 21,
    IllegalGeneration: 22,
    InconsistentGroupProtocol: 23,
    InvalidGroupId: 24,
    UnknownMember: 25,
    InvalidSessionTimeout: 26,
    RebalanceInProgress: 27,
    TopicAuthorizationFailed: 29,
    GroupAuthorizationFailed: 30,
    ClusterAuthorizationFailed: 31,
    InvalidTimestamp: 32,
    UnsupportedSaslMechanism: UNSUPPORTED_SASL_MECHANISM,
    UnsupportedVersion: UNSUPPORTED_VERSION,
    TopicAlreadyExists: 36,
    InvalidPartitions: 37,
    InvalidReplicationFactor: 38,
    InvalidReplicaAssignment: 39,
    InvalidConfig: 40,
    InvalidRequest: INVALID_REQUEST,
    UnsupportedForMessageFormat: 43,
    OutOfOrderSequence: 45,
    InvalidProducerEpoch: 47,
    TransactionalIdAuthorizationFailed: TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    SecurityDisabled: 54,
    StorageFailed: 56,
    GroupNotEmpty: 68,
    UnknownGroup: 69,
    FetchSessionNotFound: 70,
    FencedLeaderEpoch: 74,
    UnknownLeaderEpoch: 75,
    UnsupportedCompression: 76,
    MemberIdRequired: 79,
    GroupTooLarge: 81,
    FencedInstance: 82,
    GroupSubscribed: 86,
    InvalidRecord: 87,
    ThrottlingQuotaExceeded: 89,
    ResourceNotFound: 91,
    DuplicateResource: 92,
    UnacceptableCredential: 93,
    UnknownTopicId: 100,
}


def code_of(error: RequestRefused) -> int:
    """Return the error code of an exception; every subclass has one."""
    return ERROR_CODES[type(error)]


def name_of(code: int) -> str:
    """Return the name of an error code in Kafka."""
    return str(for_code(code).message)


def code_and_message(error: RequestRefused | None) -> tuple[int, str | None]:
    """Return the error code and message of a response; long messages are truncated."""
    if error is None:
        return NONE, None
    return code_of(error), str(error)[:MESSAGE_CHARS_MAX]
