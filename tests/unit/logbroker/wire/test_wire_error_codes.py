import kafka.errors
import pytest

from logbroker import errors
from logbroker.errors import RegistryUnavailable, RequestRefused
from logbroker.wire.error_codes import ERROR_CODES, code_of

KAFKAS_NAMES = {
    "CoordinatorLoading": "CoordinatorLoadInProgressError",
    "CorruptBatch": "CorruptRecordError",
    "FencedInstance": "FencedInstanceIdError",
    "FencedLeaderEpoch": "FencedLeaderEpochError",
    "FetchSessionNotFound": "FetchSessionIdNotFoundError",
    "GroupNotEmpty": "NonEmptyGroupError",
    "GroupSubscribed": "GroupSubscribedToTopicError",
    "GroupTooLarge": "GroupMaxSizeReachedError",
    "InvalidConfig": "InvalidConfigurationError",
    "InvalidReplicaAssignment": "InvalidReplicationAssignmentError",
    "InvalidTopic": "InvalidTopicError",
    "MessageTooLarge": "MessageSizeTooLargeError",
    "NotLeaderOrFollower": "NotLeaderForPartitionError",
    "OutOfOrderSequence": "OutOfOrderSequenceNumberError",
    "RecordListTooLarge": "RecordListTooLargeError",
    # Kafka knows no ZooKeeper that cannot be reached; a client tries again.
    "RegistryUnavailable": "RequestTimedOutError",
    "StorageFailed": "KafkaStorageError",
    "UnknownGroup": "GroupIdNotFoundError",
    "UnknownMember": "UnknownMemberIdError",
    "UnsupportedForMessageFormat": "UnsupportedForMessageFormatError",
    "UnsupportedCompression": "UnsupportedCompressionTypeError",
}


def refusals(kind: type[RequestRefused] = RequestRefused) -> list[type[RequestRefused]]:
    return [found for child in kind.__subclasses__() for found in (child, *refusals(child))]


@pytest.mark.parametrize(
    "kind", [kind for kind in refusals() if kind.__module__ == errors.__name__]
)
def test_every_error_has_kafkas_code(kind: type[RequestRefused]) -> None:
    theirs = KAFKAS_NAMES.get(kind.__name__, f"{kind.__name__}Error")
    assert code_of(kind("why")) == getattr(kafka.errors, theirs).errno


def test_only_the_code_of_timeouts_has_two_errors() -> None:
    others = [code for kind, code in ERROR_CODES.items() if kind is not RegistryUnavailable]
    assert len(set(others)) == len(others) == len(ERROR_CODES) - 1
