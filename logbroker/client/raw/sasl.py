"""SASL authentication of a new connection.

Source: Kafka protocol guide, "SASL Authentication Sequence"; RFC 4616; RFC 5802.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from kafka.net.sasl import SASL_MECHANISMS
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from logbroker.client.errors import NotAuthorized
from logbroker.client.raw.settings import Credentials
from logbroker.wire.error_codes import NONE, name_of

_PLAIN: Final = "PLAIN"

ITERATIONS_LEAST: Final = 4096
"""RFC 7677, section 4: fewer iterations make it easier to find an observed password."""

_ITERATIONS: Final = re.compile(rb",i=([0-9]{1,9})(?:,|$)")


def authenticate(request: Callable[[Any], Any], credentials: Credentials, broker: str) -> None:
    """Authenticate at a broker; `request` sends a request and returns its response.

    Raises:
        NotAuthorized: the broker rejects the mechanism or the credentials, or does not prove that
            it knows the password (SCRAM).
    """
    answer = request(SaslHandshakeRequest(mechanism=credentials.mechanism))
    if answer.error_code != NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise NotAuthorized(
            f"{broker} does not support {credentials.mechanism}; supported: {offered}"
        )
    mechanism = _mechanism(credentials)
    while not mechanism.is_done():
        answer = request(SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes()))
        if answer.error_code != NONE:
            reason = answer.error_message or name_of(answer.error_code)
            raise NotAuthorized(f"{broker} rejects user {credentials.username!r}: {reason}")
        _receive(mechanism, bytes(answer.auth_bytes), credentials, broker)
    if not mechanism.is_authenticated():
        raise NotAuthorized(f"{broker} rejects user {credentials.username!r}")


def _mechanism(credentials: Credentials) -> Any:
    username = credentials.username
    if credentials.mechanism != _PLAIN:
        # RFC 5802, "saslname"; kafka-python sends names as they are.
        username = username.replace("=", "=3D").replace(",", "=2C")
    # Without the security protocol, about which kafka-python would only log a warning.
    return SASL_MECHANISMS[credentials.mechanism](
        sasl_mechanism=credentials.mechanism,
        sasl_plain_username=username,
        sasl_plain_password=credentials.password,
    )


def _receive(mechanism: Any, content: bytes, credentials: Credentials, broker: str) -> None:
    try:
        if credentials.mechanism != _PLAIN and (few := _ITERATIONS.search(content)):
            _check_iterations(int(few[1]), broker)
        mechanism.receive(content)
    except (ValueError, KeyError) as error:
        # A broker that knows the password sends a valid proof, so this one may be an impostor.
        raise NotAuthorized(f"{broker} does not prove that it knows the password") from error


def _check_iterations(count: int, broker: str) -> None:
    if count < ITERATIONS_LEAST:
        raise NotAuthorized(
            f"{broker} requests {count} SCRAM iterations; minimum {ITERATIONS_LEAST}"
        )
