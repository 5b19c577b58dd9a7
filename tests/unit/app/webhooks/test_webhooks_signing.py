import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.webhooks.signing import SecretRefused, SignatureRefused, new_secret, sign, verify

# The vector that the reference libraries of Standard Webhooks are tested with.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP_S = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

HEADERS = {
    "webhook-id": MESSAGE_ID,
    "webhook-timestamp": str(TIMESTAMP_S),
    "webhook-signature": SIGNATURE,
}


def test_the_test_vector_of_the_reference_libraries_passes() -> None:
    assert sign(SECRET, MESSAGE_ID, TIMESTAMP_S, BODY) == SIGNATURE
    verify(SECRET, HEADERS, BODY, TIMESTAMP_S)


def test_a_secret_without_its_prefix_signs_the_same() -> None:
    assert sign(SECRET.removeprefix("whsec_"), MESSAGE_ID, TIMESTAMP_S, BODY) == SIGNATURE


def test_header_names_are_case_insensitive() -> None:
    verify(SECRET, {name.title(): value for name, value in HEADERS.items()}, BODY, TIMESTAMP_S)


def test_one_valid_signature_of_several_is_enough() -> None:
    several = f"v1a,xyz v1,{'A' * 43}= {SIGNATURE}"
    verify(SECRET, HEADERS | {"webhook-signature": several}, BODY, TIMESTAMP_S)


@pytest.mark.parametrize("away_s", [-300, 300])
def test_a_timestamp_within_the_tolerance_is_valid(away_s: int) -> None:
    verify(SECRET, HEADERS, BODY, TIMESTAMP_S + away_s)


@pytest.mark.parametrize("away_s", [-301, 301])
def test_a_timestamp_beyond_the_tolerance_is_refused(away_s: int) -> None:
    with pytest.raises(SignatureRefused, match=r"timestamp.*within 300 s"):
        verify(SECRET, HEADERS, BODY, TIMESTAMP_S + away_s)


@pytest.mark.parametrize("text", ["", "soon", "+1614265330", "01614265330", "1.5", "-1", "9" * 30])
def test_a_timestamp_that_is_not_a_decimal_number_is_refused(text: str) -> None:
    with pytest.raises(SignatureRefused, match="webhook-timestamp"):
        verify(SECRET, HEADERS | {"webhook-timestamp": text}, BODY, TIMESTAMP_S)


@pytest.mark.parametrize("name", list(HEADERS))
def test_a_missing_header_is_an_error_with_its_name(name: str) -> None:
    without = {key: value for key, value in HEADERS.items() if key != name}
    with pytest.raises(SignatureRefused, match=f"{name} is missing"):
        verify(SECRET, without, BODY, TIMESTAMP_S)


@pytest.mark.parametrize(
    "signature", ["v1", "v1,", SIGNATURE.removeprefix("v1,"), "v2" + SIGNATURE[2:], "é"]
)
def test_a_signature_of_another_scheme_is_invalid(signature: str) -> None:
    with pytest.raises(SignatureRefused, match="no v1 signature"):
        verify(SECRET, HEADERS | {"webhook-signature": signature}, BODY, TIMESTAMP_S)


@given(
    secret=st.binary(min_size=24, max_size=64),
    message_id=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1),
    timestamp_s=st.integers(0, 10**11),
    body=st.binary(max_size=300),
    data=st.data(),
)
def test_a_signature_is_valid_until_any_byte_changes(
    secret: bytes, message_id: str, timestamp_s: int, body: bytes, data: st.DataObject
) -> None:
    text = "whsec_" + base64.b64encode(secret).decode()
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": sign(text, message_id, timestamp_s, body),
    }
    verify(text, headers, body, timestamp_s)
    place = data.draw(st.integers(0, len(body)))
    changed = bytearray(body + b"\0")
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SignatureRefused):
        verify(text, headers, bytes(changed), timestamp_s)
    with pytest.raises(SignatureRefused):
        verify(text, headers | {"webhook-id": message_id + "x"}, body, timestamp_s)


def test_new_secrets_are_long_and_differ() -> None:
    first, second = new_secret(), new_secret()
    assert first != second
    assert len(base64.b64decode(first.removeprefix("whsec_"), validate=True)) == 32


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_!!!", "whsec_" + "A" * 28, "whsec_" + "A" * 100, "whsec_é"]
)
def test_an_invalid_secret_is_refused_and_not_quoted(secret: str) -> None:
    with pytest.raises(SecretRefused) as refusal:
        sign(secret, MESSAGE_ID, TIMESTAMP_S, BODY)
    assert len(secret) < 7 or secret[6:] not in str(refusal.value)
