"""Checks of single settings; a failure is a ValueError with a complete message."""

import re
from ipaddress import ip_network
from typing import Final
from urllib.parse import urlsplit

from pydantic import ValidationInfo

from app.domain.egress_proxy import EgressProxy
from app.domain.mail import MailServer, sender_address
from app.domain.scheduled_retries import TOTAL_S_MAX
from app.domain.secret_keys import InvalidSecretKeys, parse_secret_keys
from app.variables import variable

DATABASE_SCHEMES: Final = ("sqlite", "mysql+pymysql")
"""SQLAlchemy's names of the supported databases; the second is MySQL and MariaDB."""

# An @ in a password would make its rest the host, which error messages show.
_SERVER_AND_DATABASE: Final = re.compile(
    r"([^:/@]*(:[^@]*)?@)?(\[[^\]/@]+\]|[^:/@]*)(:[0-9]{1,5})?/[^/?@]+(\?.*)?"
)

FORWARDED_HEADERS: Final = ("x-forwarded-for", "forwarded")

DELAYS_MAX: Final = 20

ORIGIN_CHARS_MAX: Final = 64
_ORIGIN: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{ORIGIN_CHARS_MAX}}}")

_PUBLIC_URL: Final = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def check_database(url: str) -> str:
    """Reject unsupported databases; the message omits what may be a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        problem = "is no URL"
    elif scheme not in DATABASE_SCHEMES:
        problem = f"has the scheme {scheme!r}"
    elif not rest.partition("/")[2]:
        problem = "names no file or database"
    elif scheme != "sqlite" and not _SERVER_AND_DATABASE.fullmatch(rest):
        problem = "is malformed behind its scheme"
    else:
        return url
    allowed = (
        "sqlite:///FILE or mysql+pymysql://USER:PASSWORD@HOST:PORT/DATABASE, "
        "with @ and other marks of a password percent-encoded"
    )
    raise ValueError(f"{variable('database')} {problem}; allowed is {allowed}")


def check_secret_key(text: str) -> str:
    """Reject keys of another form; the message omits them."""
    try:
        if text:
            parse_secret_keys(text)
    except InvalidSecretKeys as error:
        raise ValueError(f"{variable('secret_key')} {error}") from None
    return text


def check_networks(text: str, info: ValidationInfo) -> str:
    """Reject texts that are no comma-separated networks."""
    for part in filter(None, text.split(",")):
        try:
            ip_network(part.strip())
        except ValueError:
            raise ValueError(
                f"{variable(info.field_name or '')} has {part.strip()!r}; allowed are networks "
                "such as 10.1.0.0/16 or fd00::/8, with commas between"
            ) from None
    return text


def check_forwarded_header(name: str) -> str:
    """Reject headers that name no client; return the name in lower case."""
    if name.lower() not in FORWARDED_HEADERS:
        raise ValueError(
            f"{variable('forwarded_header')} is {name!r}; allowed is "
            + " or ".join(FORWARDED_HEADERS)
        )
    return name.lower()


def check_delays(text: str) -> str:
    """Reject texts that are no comma-separated waits."""
    try:
        delays = [float(part) for part in text.split(",")]
    except ValueError:
        delays = []
    if not 1 <= len(delays) <= DELAYS_MAX or not all(0 <= each <= 86_400 for each in delays):
        raise ValueError(
            f"{variable('live_delays_s')} is {text!r}; allowed are 1 to {DELAYS_MAX} numbers of "
            "seconds from 0 to 86400, with commas between"
        )
    return text


def check_pauses(text: str) -> str:
    """Reject texts that are no comma-separated pauses, or pauses longer than the history."""
    try:
        pauses = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        pauses = [-1.0]
    is_allowed = all(1 <= each <= 86_400 for each in pauses)
    if not is_allowed or len(pauses) > DELAYS_MAX or sum(pauses) > TOTAL_S_MAX:
        raise ValueError(
            f"{variable('scheduled_retries_s')} is {text!r}; allowed are up to {DELAYS_MAX} "
            f"numbers of seconds from 1 to 86400, of together {TOTAL_S_MAX}, with commas between"
        )
    return text


def check_registry(url: str) -> str:
    """Reject an invalid registry address; the message omits what may be a password."""
    try:
        parts = urlsplit(url)
        is_place = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_bare = not (parts.query or parts.fragment)
    except ValueError:
        is_place = is_bare = False
    if url and not (is_place and is_bare):
        raise ValueError(
            f"{variable('schema_registry')} is no address of a schema registry; allowed is "
            "http://HOST:PORT or https://USER:PASSWORD@HOST:PORT, with an optional path"
        )
    return url


def check_egress_proxy(url: str) -> str:
    """Reject an invalid address of a proxy; the message omits what may be a password."""
    try:
        EgressProxy.parse(url)
    except ValueError as error:
        raise ValueError(f"{variable('egress_proxy')} is no address of a proxy; {error}") from None
    return url


def check_smtp_url(url: str) -> str:
    """Reject an invalid address of a mail server; the message omits what may be a password."""
    try:
        MailServer.parse(url)
    except ValueError as error:
        raise ValueError(f"{variable('smtp_url')} is no mail server; {error}") from None
    return url


def check_smtp_from(sender: str) -> str:
    """Reject a sender that has no single address."""
    try:
        if sender:
            sender_address(sender)
    except ValueError as error:
        raise ValueError(f"{variable('smtp_from')} is {sender!r}; {error}") from None
    return sender


def check_public_url(url: str) -> str:
    """Reject a URL that is not a browser origin, such as one with a path or a user."""
    if url and not _PUBLIC_URL.fullmatch(url):
        raise ValueError(
            f"{variable('public_url')} is {url!r}; allowed is http://HOST[:PORT] or "
            "https://HOST[:PORT], with nothing behind it"
        )
    return url


def check_origin(name: str) -> str:
    """Reject names that do not fit a column or header, or that a database may confuse."""
    if not _ORIGIN.fullmatch(name):
        raise ValueError(
            f"{variable('origin')} is {name!r}; allowed are 1 to {ORIGIN_CHARS_MAX} letters, "
            "digits, dots, hyphens and underscores"
        )
    return name
