"""Signatures of webhooks: HMAC-SHA256 with a shared secret.

The signed content is `id.timestamp.body`: a signature is valid for one event only, and a receiver
that checks the timestamp rejects old requests.

Source: Standard Webhooks 1.0.0, "Signature scheme" and "Verifying webhook authenticity".
"""

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from secrets import token_bytes
from typing import Final

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  a prefix, not a password
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
_NEW_SECRET_BYTES: Final = 32
_SCHEME: Final = "v1,"


class SecretRefused(ValueError):
    """An invalid webhook secret; the message never contains it."""


class SignatureRefused(ValueError):
    """A signature that is invalid or too old; the message says why."""


def new_secret() -> str:
    """A new secret of 32 random bytes: `whsec_` and base64."""
    return SECRET_PREFIX + b64encode(token_bytes(_NEW_SECRET_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Return if `secret` is valid.

    Raises:
        SecretRefused: it is not base64, or has a length that Standard Webhooks does not allow.
    """
    _key(secret)


def sign(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature` for an attempt at `timestamp_s`.

    Raises:
        SecretRefused: see `check_secret`.
    """
    return _signature(secret, _signed_content(message_id, timestamp_s, body))


def sign_with_each(secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature` with one signature per secret, for a secret rotation.

    Raises:
        SecretRefused: see `check_secret`.
    """
    signed = _signed_content(message_id, timestamp_s, body)
    return " ".join([_signature(secret, signed) for secret in secrets])


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, now_s: float, tolerance_s: float = 300
) -> None:
    """Return if `headers` have a signature of `body` with a time within `tolerance_s` of `now_s`.

    One valid signature of several, separated by spaces, is enough: a rotation sends two. Header
    names are case-insensitive.

    Raises:
        SignatureRefused: there is none.
        SecretRefused: see `check_secret`.
    """
    found = {name.lower(): value for name, value in headers.items()}
    timestamp_s = _recent_timestamp(_header(found, "webhook-timestamp"), now_s, tolerance_s)
    expected = sign(secret, _header(found, "webhook-id"), timestamp_s, body).encode()
    offered = _header(found, "webhook-signature").encode().split(b" ")
    if not any(hmac.compare_digest(expected, signature) for signature in offered):
        raise SignatureRefused("webhook-signature has no v1 signature of this body and secret")


def _signed_content(message_id: str, timestamp_s: int, body: bytes) -> bytes:
    return b"%b.%d.%b" % (message_id.encode(), timestamp_s, body)


def _signature(secret: str, signed: bytes) -> str:
    return _SCHEME + b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise SignatureRefused(f"{name} is missing")
    return value


def _recent_timestamp(text: str, now_s: float, tolerance_s: float) -> int:
    # Other spellings of a number ("+5", "05") would be verified as "5": only one is valid.
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and text == str(int(text))):
        raise SignatureRefused(f"webhook-timestamp is {text[:20]!r}; allowed are unix seconds")
    timestamp_s = int(text)
    if abs(now_s - timestamp_s) > tolerance_s:
        raise SignatureRefused(
            f"webhook-timestamp is {timestamp_s}; "
            f"allowed is within {tolerance_s:g} s of {now_s:.0f}"
        )
    return timestamp_s


@lru_cache(maxsize=1024)
def _key(secret: str) -> bytes:
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        # The cause would contain a part of the secret.
        raise SecretRefused("the secret is not whsec_ followed by base64") from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise SecretRefused(
            f"the secret has {len(key)} bytes; allowed are {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        )
    return key
