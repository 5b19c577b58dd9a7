"""SCRAM-SHA-256 and SCRAM-SHA-512: salted credentials, and the server's side of an exchange.

Source: RFC 5802, RFC 7677; Kafka, `ScramFormatter`, `ScramMechanism` (codes and limits).
"""

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum
from typing import Final, NamedTuple

from logbroker.errors import LogbrokerError

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
SALT_BYTES_MAX: Final = 64
USER_NAME_CHARS_MAX: Final = 255
NONCE_CHARS_MAX: Final = 512

_CLIENT_FIRST: Final = re.compile(
    r"(?P<channel>[ny]),(?:a=(?P<authzid>[^,]*))?,"
    r"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,(?P<extensions>.*))?)",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<bare>c=(?P<channel>[^,]+),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]+)", re.DOTALL
)


class AuthenticationFailed(LogbrokerError):
    """A client did not prove its identity; the message is for the log, without secrets."""


class ScramMechanism(Enum):
    """The mechanisms with their codes in Kafka's protocol and their hash functions."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SASL, such as `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function in `hashlib`."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def digest_bytes(self) -> int:
        """The size of a key."""
        return hashlib.new(self.hash_name).digest_size


class ScramCredential(NamedTuple):
    """What a server stores of a password: enough to verify it, not enough to log in."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, which takes some milliseconds on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def derive_credential(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = _hmac(mechanism, salted_password, b"Server Key")
    return ScramCredential(salt, stored_key, server_key, iterations)


def verify_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Return whether a credential is that of a password; takes some milliseconds."""
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    derived = derive_credential(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(derived.stored_key, credential.stored_key)


class ScramExchange:
    """One authentication: `first` answers the client's first message, `finish` its final one."""

    def __init__(self, mechanism: ScramMechanism, server_nonce: str) -> None:
        self._mechanism = mechanism
        self._server_nonce = server_nonce
        self.user = ""

    def read_first(self, message: bytes) -> str:
        """Parse the first message and return the name of the user.

        Raises:
            AuthenticationFailed: the message is malformed, or asks for what is not supported.
        """
        match = _CLIENT_FIRST.fullmatch(_text(message))
        if match is None or len(match["nonce"]) > NONCE_CHARS_MAX:
            raise AuthenticationFailed("the first SCRAM message is malformed")
        if match["extensions"]:
            raise AuthenticationFailed("SCRAM extensions, such as token authentication")
        self.user = _sasl_name(match["name"])
        if match["authzid"] and _sasl_name(match["authzid"]) != self.user:
            raise AuthenticationFailed("the authorization id differs from the user name")
        self._header = f"{match['channel']},{'a=' + match['authzid'] if match['authzid'] else ''},"
        self._client_first = match["bare"]
        self._nonce = match["nonce"] + self._server_nonce
        return self.user

    def challenge(self, credential: ScramCredential) -> bytes:
        """Return the server's first message, for the credential of the user."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def finish(self, message: bytes) -> bytes:
        """Verify the client's proof, and return the server's final message.

        Raises:
            AuthenticationFailed: the message is malformed, or the password is wrong.
        """
        match = _CLIENT_FINAL.fullmatch(_text(message))
        if match is None:
            raise AuthenticationFailed("the final SCRAM message is malformed")
        proof = _decode(match["proof"])
        if match["nonce"] != self._nonce or _decode(match["channel"]) != self._header.encode():
            raise AuthenticationFailed("the final SCRAM message belongs to another exchange")
        parts = (self._client_first, self._server_first, match["bare"])
        signed = ",".join(parts).encode()
        signature = _hmac(self._mechanism, self._credential.stored_key, signed)
        if len(proof) != len(signature):
            raise AuthenticationFailed("the SCRAM proof has the wrong size")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise AuthenticationFailed("wrong user name or password")
        verifier = _hmac(self._mechanism, self._credential.server_key, signed)
        return b"v=" + base64.b64encode(verifier)


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a SCRAM message is not UTF-8") from None


def _sasl_name(text: str) -> str:
    if re.search("=(?!2C|3D)", text):
        raise AuthenticationFailed("the user name is not escaped")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("a SCRAM message is not base64") from None
