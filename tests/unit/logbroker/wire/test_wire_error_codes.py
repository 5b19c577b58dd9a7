import kafka.errors
import pytest

from logbroker import errors
from logbroker.errors import RequestRefused
from logbroker.wire.error_codes import ERROR_CODES, code_of

KAFKAS_NAMES = {
    "CorruptBatch": "CorruptRecordError",
    "FencedLeaderEpoch": "FencedLeaderEpochError",
    "FetchSessionNotFound": "FetchSessionIdNotFoundError",
    "InvalidConfig": "InvalidConfigurationError",
    "InvalidReplicaAssignment": "InvalidReplicationAssignmentError",
    "InvalidTopic": "InvalidTopicError",
    "MessageTooLarge": "MessageSizeTooLargeError",
    "OutOfOrderSequence": "OutOfOrderSequenceNumberError",
    "RecordListTooLarge": "RecordListTooLargeError",
    "StorageFailed": "KafkaStorageError",
    "UnsupportedForMessageFormat": "UnsupportedForMessageFormatError",
    "UnsupportedCompression": "UnsupportedCompressionTypeError",
}


def refusals(kind: type[RequestRefused] = RequestRefused) -> list[type[RequestRefused]]:
    return [found for child in kind.__subclasses__() for found in (child, *refusals(child))]


@pytest.mark.parametrize(
    "kind", [kind for kind in refusals() if kind.__module__ == errors.__name__]
)
def test_every_refusal_has_kafkas_code(kind: type[RequestRefused]) -> None:
    theirs = KAFKAS_NAMES.get(kind.__name__, f"{kind.__name__}Error")
    assert code_of(kind("why")) == getattr(kafka.errors, theirs).errno


def test_no_code_stands_for_two_refusals() -> None:
    assert len(set(ERROR_CODES.values())) == len(ERROR_CODES)
