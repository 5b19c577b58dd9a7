import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from logbroker.errors import MalformedRequest, ProtocolViolation, UnsupportedRequest
from logbroker.wire.apis import SERVED, ApiKey, is_flexible, serves
from logbroker.wire.frame_reader import FrameReader
from logbroker.wire.messages import REQUESTS
from logbroker.wire.primitives import encode_uvarint
from logbroker.wire.request import RequestHeader, read_request_header

CLASSES = {**REQUESTS, ApiKey.PRODUCE: ProduceRequest, ApiKey.FETCH: FetchRequest}
V1 = bytes.fromhex("0003 0008 00000007 0002 6162")
V2 = bytes.fromhex("0003 0009 00000007 0002 6162 00")


def test_a_header_is_read_up_to_the_body() -> None:
    assert read_request_header(memoryview(V1 + b"body")) == (RequestHeader(3, 8, 7, "ab"), 12)
    assert read_request_header(memoryview(V2 + b"body")) == (RequestHeader(3, 9, 7, "ab"), 13)


def test_a_null_client_and_unknown_tags_are_fine() -> None:
    frame = bytes.fromhex("0003 0009 00000007 ffff 01 07 02 aabb")
    assert read_request_header(memoryview(frame)) == (RequestHeader(3, 9, 7, None), len(frame))


@pytest.mark.parametrize("frame", [V1, V2, V2[:-1] + b"\1\7\2ab"])
def test_a_header_cut_at_any_byte_is_malformed(frame: bytes) -> None:
    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            read_request_header(memoryview(frame)[:end])


@pytest.mark.parametrize("api_key", [-1, 4, 7, 17, 24, 28, 36, 45, 46, 68, 69, 75, 2**15 - 1])
def test_an_unknown_api_is_rejected(api_key: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + V1[2:]
    with pytest.raises(UnsupportedRequest, match=f"API {api_key} version 8"):
        read_request_header(memoryview(frame))


@pytest.mark.parametrize("api_key", [key for key in ApiKey if key is not ApiKey.API_VERSIONS])
def test_an_unsupported_version_is_rejected(api_key: ApiKey) -> None:
    lowest, highest = SERVED[api_key]
    for version in (-1, lowest - 1, highest + 1):
        assert not serves(api_key, version)
        frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + V1[4:]
        with pytest.raises(UnsupportedRequest):
            read_request_header(memoryview(frame))


@pytest.mark.parametrize("api_key", ApiKey)
def test_the_table_agrees_with_kafkas_schemas(api_key: ApiKey) -> None:
    message_class = CLASSES[api_key]
    assert api_key == message_class.API_KEY
    lowest, highest = SERVED[api_key]
    assert highest <= message_class.max_version
    for version in range(lowest, highest + 1):
        assert is_flexible(api_key, version) == message_class.flexible_version_q(version)


@given(st.integers(0, 2**32 - 1))
def test_varints_are_decoded_as_encoded(value: int) -> None:
    data = encode_uvarint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    reader = FrameReader(memoryview(data + b"\0"), 0, len(data))
    assert reader.read_uvarint() == value
    assert reader.position == len(data)
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            FrameReader(memoryview(data), 0, end).read_uvarint()


@pytest.mark.parametrize(
    "data", [b"\x80" * 5 + b"\0", b"\xff" * 4 + b"\x10", b"\xff" * 100], ids=lambda data: data.hex()
)
def test_a_varint_above_32_bits_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRequest, match="more than 32 bits"):
        FrameReader(memoryview(data), 0, len(data)).read_uvarint()


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_violation(data: bytes) -> None:
    try:
        _, offset = read_request_header(memoryview(data))
    except ProtocolViolation:
        return
    assert offset <= len(data)
