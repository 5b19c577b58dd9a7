"""A log-in over a new connection: the mechanism's bytes go to and fro in requests.

Source: Kafka protocol guide, "SASL Authentication Sequence"; RFC 4616; RFC 5802.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from kafka.net.sasl import SASL_MECHANISMS
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from logbroker.client.errors import NotAuthorized
from logbroker.client.raw.settings import Login
from logbroker.wire.error_codes import NONE, name_of

_PLAIN: Final = "PLAIN"

ITERATIONS_LEAST: Final = 4096
"""RFC 7677, section 4; with fewer, who overhears a log-in finds the password sooner."""

_ITERATIONS: Final = re.compile(rb",i=([0-9]{1,9})(?:,|$)")


def log_in(ask: Callable[[Any], Any], login: Login, broker: str) -> None:
    """Log in at a broker, whom `ask` sends a request and has the answer of.

    Raises:
        NotAuthorized: the broker does not know the mechanism, or not the user with this password,
            or it does not know the password itself (SCRAM proves that, too).
    """
    answer = ask(SaslHandshakeRequest(mechanism=login.mechanism))
    if answer.error_code != NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise NotAuthorized(f"{broker} does not take {login.mechanism}; it takes {offered}")
    mechanism = _mechanism(login)
    while not mechanism.is_done():
        answer = ask(SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes()))
        if answer.error_code != NONE:
            reason = answer.error_message or name_of(answer.error_code)
            raise NotAuthorized(f"{broker} does not let {login.username!r} in: {reason}")
        _receive(mechanism, bytes(answer.auth_bytes), login, broker)
    if not mechanism.is_authenticated():
        raise NotAuthorized(f"{broker} does not let {login.username!r} in")


def _mechanism(login: Login) -> Any:
    username = login.username
    if login.mechanism != _PLAIN:
        # RFC 5802, "saslname"; kafka-python sends names as they are.
        username = username.replace("=", "=3D").replace(",", "=2C")
    # The protocol is left out: kafka-python would only warn of one in the clear, each time.
    return SASL_MECHANISMS[login.mechanism](
        sasl_mechanism=login.mechanism,
        sasl_plain_username=username,
        sasl_plain_password=login.password,
    )


def _receive(mechanism: Any, content: bytes, login: Login, broker: str) -> None:
    try:
        if login.mechanism != _PLAIN and (few := _ITERATIONS.search(content)):
            _check_iterations(int(few[1]), broker)
        mechanism.receive(content)
    except (ValueError, KeyError) as error:
        # A broker that knows the password sends what it has to, so this may be no broker of ours.
        raise NotAuthorized(f"{broker} does not prove that it knows the password") from error


def _check_iterations(count: int, broker: str) -> None:
    if count < ITERATIONS_LEAST:
        raise NotAuthorized(
            f"{broker} asks for a proof in {count} rounds; {ITERATIONS_LEAST} are the least"
        )
