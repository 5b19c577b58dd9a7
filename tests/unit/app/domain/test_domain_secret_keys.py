"""Keys of webhook secrets, as text."""

import pytest

from app.domain.secret_keys import (
    KEYS_MAX,
    InvalidSecretKeys,
    format_secret_key,
    key_id,
    parse_secret_keys,
)

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
TEXTS = format_secret_key(FIRST), format_secret_key(SECOND)


@pytest.mark.parametrize(
    "text", [",".join(TEXTS), "\n".join(TEXTS), f"\n {TEXTS[0]} ,\r\n{TEXTS[1]}\n"]
)
def test_keys_are_separated_by_commas_or_lines(text: str) -> None:
    assert parse_secret_keys(text) == (FIRST, SECOND)


def test_a_key_of_openssl_is_a_key() -> None:
    # openssl rand -base64 32
    assert len(parse_secret_keys("K0oJPq0Gk2JZ3sK8Ck8o6fW3c2rj4rT1g7dA0m1Vd3U=\n")[0]) == 32


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no key"),
        (" \n,", "has no key"),
        ("c2VjcmV0", "has a key of 6 bytes"),
        ("hunter2!", "has a key that is not base64"),
        (f"{TEXTS[0]},hunter2ü", "has a key that is not base64"),
        (f"{TEXTS[0]},{TEXTS[0]}", "has 2 keys, or a key twice"),
        (
            ",".join(format_secret_key(bytes([each] * 32)) for each in range(KEYS_MAX + 1)),
            "has 17 keys, or a key twice",
        ),
    ],
)
def test_other_text_is_rejected_without_showing_it(text: str, problem: str) -> None:
    with pytest.raises(InvalidSecretKeys) as refused:
        parse_secret_keys(text)
    assert str(refused.value).startswith(f"{problem}; allowed are 1 to 16 different keys")
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    for part in ("hunter2", "c2VjcmV0", TEXTS[0]):
        assert part not in str(refused.value)


def test_a_key_has_a_public_id() -> None:
    # printf 'rewind secret key\0' and the 32 bytes 0 to 31, through sha256sum.
    assert key_id(FIRST) == "90cf1702"
    assert key_id(FIRST) != key_id(SECOND)
