import struct

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from logbroker.errors import MalformedRequest
from logbroker.wire.api_versions import encode_api_versions_response
from logbroker.wire.apis import ADVERTISED, ApiKey
from logbroker.wire.request import read_request_header

TABLE = [(int(key), low, high) for key, (low, high) in ADVERTISED.items()]


def request_of(
    version: int, name: str = "apache-kafka-java", software_version: str = "4.1.0"
) -> bytes:
    request = ApiVersionsRequest(
        version=version, client_software_name=name, client_software_version=software_version
    )
    request.with_header(correlation_id=77, client_id="c")
    return bytes(request.encode(header=True))


def answer_to(frame: bytes) -> bytes:
    view = memoryview(frame)
    header, offset = read_request_header(view)
    return encode_api_versions_response(header, view, offset)


def ranges(response: ApiVersionsResponse) -> list[tuple[int, int, int]]:
    return [(api.api_key, api.min_version, api.max_version) for api in response.api_keys]


@pytest.mark.parametrize("version", range(5))
def test_every_version_returns_the_supported_apis(version: int) -> None:
    answer = answer_to(request_of(version))
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    response = ApiVersionsResponse.decode(answer, version=version, header=True, framed=True)
    assert response.header.correlation_id == 77
    assert response.error_code == 0
    assert ranges(response) == TABLE
    assert response.tags is None
    # The header has no tags: right behind the correlation id is the error code.
    assert answer[8:10] == b"\0\0"
    count = answer[10:14] if version < 3 else answer[10:11]
    assert int.from_bytes(count, "big") == len(TABLE) + (version >= 3)


@pytest.mark.parametrize("version", [5, 6, 100, 2**15 - 1, -1])
@pytest.mark.parametrize("rest", [b"", b"\0", b"\xff" * 9])
def test_an_unknown_version_is_answered_in_version_0(version: int, rest: bytes) -> None:
    answer = answer_to(struct.pack(">hhihc", 18, version, 77, 1, b"c") + rest)
    assert answer == bytes.fromhex("00000010 0000004d 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("wrong", ["", " ", "-java", "java-", "ja va", "jäva", "java\n", "."])
def test_software_must_be_named_as_kafka_wants_it(version: int, wrong: str) -> None:
    for frame in (
        request_of(version, name=wrong),
        request_of(version, software_version=wrong),
    ):
        # error 42, no API, no throttle, no tags
        assert answer_to(frame)[4:] == bytes.fromhex("0000004d 002a 01 00000000 00")


@pytest.mark.parametrize("right", ["a", "librdkafka", "2.0.2", "kafka-python", "4.1.0-rc1", "A.-b"])
def test_usual_names_are_accepted(right: str) -> None:
    response = ApiVersionsResponse.decode(
        answer_to(request_of(3, right, right)), version=3, header=True, framed=True
    )
    assert response.error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    frame = request_of(version)
    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            answer_to(frame[:end])


def test_produce_is_advertised_from_0_and_fetch_to_at_least_12() -> None:
    assert ADVERTISED[ApiKey.PRODUCE][0] == 0
    assert ADVERTISED[ApiKey.FETCH][1] >= 12


def test_find_coordinator_is_advertised_from_0_so_that_librdkafka_uses_lz4() -> None:
    assert ADVERTISED[ApiKey.FIND_COORDINATOR][0] == 0
