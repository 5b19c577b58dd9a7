import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from logbroker.client.errors import NotAuthorized
from logbroker.client.raw.sasl import authenticate
from logbroker.client.raw.settings import Credentials

PASSWORD = "secret-word"
SALT = b"salt"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Change = Callable[[bytes], bytes]


class ScramServer:
    """The other side of RFC 5802, which can say something else than it should."""

    def __init__(
        self,
        mechanism: str,
        *,
        password: str = PASSWORD,
        iterations: int = 4096,
        first: Change = bytes,
        final: Change = bytes,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._iterations = iterations
        self._changes = [first, final]
        self._said: list[bytes] = []
        self.heard: list[bytes] = []

    def request(self, request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=list(HASHES))
        assert isinstance(request, SaslAuthenticateRequest)
        self.heard.append(bytes(request.auth_bytes))
        answer = self._first() if len(self.heard) == 1 else self._final()
        self._said.append(answer)
        changed = self._changes[len(self.heard) - 1](answer)
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=changed)

    def _first(self) -> bytes:
        nonce = self.heard[0].partition(b",r=")[2]
        salt = base64.b64encode(SALT)
        return b"r=%s-more,s=%s,i=%d" % (nonce, salt, self._iterations)

    def _final(self) -> bytes:
        bare, proof = self.heard[0].removeprefix(b"n,,"), self.heard[1].rpartition(b",p=")
        message = b",".join([bare, self._said[0], proof[0]])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), SALT, self._iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored, message)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof[2]), signature, strict=True))
        assert shown == client_key, "the client knows the password"
        return b"v=" + base64.b64encode(self._hmac(self._hmac(salted, b"Server Key"), message))

    def _hmac(self, key: bytes, content: bytes) -> bytes:
        return hmac.digest(key, content, self._hash)


@pytest.mark.parametrize("mechanism", HASHES)
def test_both_sides_prove_that_they_know_the_password(mechanism: str) -> None:
    server = ScramServer(mechanism)

    authenticate(server.request, Credentials(mechanism, "me", PASSWORD), "broker")

    assert len(server.heard) == 2
    assert not any(PASSWORD.encode() in heard for heard in server.heard)


def test_signs_with_a_meaning_are_written_as_the_mechanism_wants_them() -> None:
    server = ScramServer("SCRAM-SHA-256")

    authenticate(server.request, Credentials("SCRAM-SHA-256", "a=b,c", PASSWORD), "broker")

    assert server.heard[0].startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"final": lambda _: b"v=" + base64.b64encode(bytes(32))}, "does not prove"),
        ({"final": lambda _: b"e=other-error"}, "does not prove"),
        ({"final": lambda _: b""}, "does not prove"),
        ({"first": lambda said: said.replace(b"r=", b"r=x")}, "does not prove"),
        ({"first": lambda _: b"\xff\xfe"}, "does not prove"),
        ({"first": lambda said: re.sub(rb"i=\d+", b"i=2000000", said)}, "does not prove"),
        ({"first": lambda said: re.sub(rb"i=\d+", b"i=-5", said)}, "does not prove"),
        ({"iterations": 4095}, "4095 SCRAM iterations; minimum 4096"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_not_trusted(
    changes: dict[str, Any], expected: str
) -> None:
    server = ScramServer("SCRAM-SHA-256", **changes)

    with pytest.raises(NotAuthorized, match=f"^broker .*{expected}") as refused:
        authenticate(server.request, Credentials("SCRAM-SHA-256", "me", PASSWORD), "broker")
    assert PASSWORD not in str(refused.value)


def test_the_error_message_of_a_plain_server_is_reported() -> None:
    def request(request: Any) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        return SaslAuthenticateResponse(error_code=58, error_message="unknown user", auth_bytes=b"")

    with pytest.raises(NotAuthorized, match="rejects user 'me': unknown user"):
        authenticate(request, Credentials("PLAIN", "me", PASSWORD), "broker")
