"""The options of `logbroker serve` that say where and how the broker listens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

import click
from click.core import ParameterSource

from logbroker.cli.server_command import AddressParam
from logbroker.config import SASL_MECHANISMS, ClientAuth
from logbroker.errors import ConfigurationError
from logbroker.listeners import SecurityProtocol, parse_listeners

_BY_ADDRESS: Final = ("listen", "advertised_host", "advertised_port")
_BY_NAME: Final = ("listeners", "listener_security_protocol_map", "advertised_listeners")

_OPTIONS: Final = (
    click.option(
        "--listen",
        type=AddressParam(),
        default="127.0.0.1:9092",
        envvar="LOGBROKER_LISTEN",
        show_default=True,
        show_envvar=True,
        help="Address to listen on; with port 0 the system chooses one.",
    ),
    click.option(
        "--advertised-host",
        envvar="LOGBROKER_ADVERTISED_HOST",
        show_envvar=True,
        help="Host name for clients. Default: the listening host.",
    ),
    click.option(
        "--advertised-port",
        type=int,
        envvar="LOGBROKER_ADVERTISED_PORT",
        show_envvar=True,
        help="Port for clients. Default: the listening port.",
    ),
    click.option(
        "--listeners",
        metavar="NAME://HOST:PORT,...",
        envvar="LOGBROKER_LISTENERS",
        show_envvar=True,
        help="Several listeners, instead of --listen. A name is a security protocol "
        f"({', '.join(SecurityProtocol)}) or mapped to one.",
    ),
    click.option(
        "--listener-security-protocol-map",
        metavar="NAME:PROTOCOL,...",
        envvar="LOGBROKER_LISTENER_SECURITY_PROTOCOL_MAP",
        show_envvar=True,
        help="Security protocols of listeners that have another name.",
    ),
    click.option(
        "--advertised-listeners",
        metavar="NAME://HOST:PORT,...",
        envvar="LOGBROKER_ADVERTISED_LISTENERS",
        show_envvar=True,
        help="Addresses for clients. Default: those of --listeners.",
    ),
)


_INSECURE_OPTION: Final = click.option(
    "--insecure",
    is_flag=True,
    envvar="LOGBROKER_INSECURE",
    show_envvar=True,
    help="Admit other machines without authentication: for a private network.",
)

_PEM_FILE: Final = click.Path(path_type=Path, dir_okay=False)

_TLS_OPTIONS: Final = (
    click.option(
        "--ssl-certfile",
        type=_PEM_FILE,
        envvar="LOGBROKER_SSL_CERTFILE",
        show_envvar=True,
        help="PEM file with the certificate chain of SSL and SASL_SSL listeners.",
    ),
    click.option(
        "--ssl-keyfile",
        type=_PEM_FILE,
        envvar="LOGBROKER_SSL_KEYFILE",
        show_envvar=True,
        help="PEM file with its key. Default: the file of --ssl-certfile.",
    ),
    click.option(
        "--ssl-ca-file",
        type=_PEM_FILE,
        envvar="LOGBROKER_SSL_CA_FILE",
        show_envvar=True,
        help="PEM file with the CAs that sign certificates of clients.",
    ),
    click.option(
        "--ssl-client-auth",
        type=click.Choice(get_args(ClientAuth)),
        default="none",
        envvar="LOGBROKER_SSL_CLIENT_AUTH",
        show_default=True,
        show_envvar=True,
        help="Whether clients of SSL listeners authenticate with a certificate.",
    ),
    click.option(
        "--sasl-enabled-mechanisms",
        default=",".join(SASL_MECHANISMS),
        metavar="MECHANISM,...",
        callback=lambda _context, _option, text: tuple(filter(None, text.upper().split(","))),
        envvar="LOGBROKER_SASL_ENABLED_MECHANISMS",
        show_default=True,
        show_envvar=True,
        help="Mechanisms of SASL_SSL and SASL_PLAINTEXT listeners.",
    ),
)


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of certificates to a command."""
    for option in reversed(_TLS_OPTIONS):
        command = option(command)
    return command


def listener_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    for option in reversed((*_OPTIONS, _INSECURE_OPTION)):
        command = option(command)
    return command


def take_listener_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Remove these options from those of the running command; return settings of `BrokerConfig`.

    `--listen` on the command line wins over listeners in the environment, and the reverse.

    Raises:
        ConfigurationError: a listener is malformed; the message has one line per problem.
    """
    host, port = options.pop("listen")
    address = {
        "advertised_host": options.pop("advertised_host"),
        "advertised_port": options.pop("advertised_port"),
    }
    listeners, protocols, advertised = (options.pop(name) for name in _BY_NAME)
    by_name, by_address = _rank(_BY_NAME), _rank(_BY_ADDRESS)
    if by_name == by_address > 0:
        raise click.UsageError("--listeners and --listen are mutually exclusive")
    if by_name <= by_address:
        return {"host": host, "port": port, **address}
    try:
        parsed = parse_listeners(listeners or "", protocols, advertised)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return {"host": parsed[0].host, "port": parsed[0].port, "listeners": parsed}


def _rank(names: tuple[str, ...]) -> int:
    """Return 2 if one of the options is on the command line, 1 if it is a variable, else 0."""
    ranks = {ParameterSource.COMMANDLINE: 2, ParameterSource.ENVIRONMENT: 1}
    context = click.get_current_context()
    sources = (context.get_parameter_source(name) for name in names)
    return max(0 if source is None else ranks.get(source, 0) for source in sources)
