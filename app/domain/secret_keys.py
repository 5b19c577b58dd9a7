"""The keys that encrypt the secrets of webhooks, as text: base64 of 32 bytes each."""

import re
from base64 import b64decode, b64encode
from binascii import Error
from hashlib import sha256
from typing import Final

KEY_BYTES: Final = 32
"""AES-256."""

KEYS_MAX: Final = 16

ID_CHARS: Final = 8
"""Hexadecimal digits: the few keys of one installation differ in them."""

ALLOWED: Final = (
    f"allowed are 1 to {KEYS_MAX} different keys, each {KEY_BYTES} bytes in base64, with commas or "
    "line breaks between; `rewind secrets new-key` prints one"
)


class InvalidSecretKeys(ValueError):
    """The text does not have the form of keys; the message does not contain it."""


def parse_secret_keys(text: str) -> tuple[bytes, ...]:
    """The keys in `text`, in its order; empty lines and spaces around keys are ignored.

    Raises:
        InvalidSecretKeys: it has no key, too many, one twice, or one of another length.
    """
    keys = tuple(map(_parse_key, filter(None, map(str.strip, re.split(r"[,\n]", text)))))
    if not keys:
        raise InvalidSecretKeys(f"has no key; {ALLOWED}")
    if len(keys) > KEYS_MAX or len(set(map(key_id, keys))) < len(keys):
        raise InvalidSecretKeys(f"has {len(keys)} keys, or a key twice; {ALLOWED}")
    return keys


def _parse_key(text: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except (Error, ValueError):
        # The cause would contain a part of the key.
        raise InvalidSecretKeys(f"has a key that is not base64; {ALLOWED}") from None
    if len(key) != KEY_BYTES:
        raise InvalidSecretKeys(f"has a key of {len(key)} bytes; {ALLOWED}")
    return key


def format_secret_key(key: bytes) -> str:
    """The text of a key."""
    return b64encode(key).decode()


def key_id(key: bytes) -> str:
    """The public name of a key: a hash, from which the key cannot be computed."""
    return sha256(b"rewind secret key\0" + key).hexdigest()[:ID_CHARS]
