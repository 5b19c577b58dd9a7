"""E-mail: the operator's mail server, addresses, and how an attempt to send ends."""

import re
from dataclasses import dataclass, field
from email.utils import getaddresses
from enum import StrEnum
from typing import Final, Self
from urllib.parse import unquote, urlsplit

MAILTO: Final = "mailto:"

ADDRESS_CHARS_MAX: Final = 254
"""The longest path that SMTP allows, without its brackets (RFC 5321, section 4.5.3.1.3)."""

ADDRESS_FORM: Final = (
    "mailto: and one address such as ops@example.com, of unencoded ASCII letters, digits and "
    ".!$&'*+=_~-"
)

_ATOM: Final = r"[A-Za-z0-9!$&'*+=_~-]+"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LOCAL_PART: Final = rf"(?!-)(?=.{{1,64}}@){_ATOM}(?:\.{_ATOM})*"
# Not the address of a host, whose last part is a number.
_RECIPIENT: Final = re.compile(rf"{_LOCAL_PART}@(?:{_LABEL}\.)+(?![0-9]){_LABEL}")
_SENDER: Final = re.compile(rf"{_LOCAL_PART}@{_LABEL}(?:\.{_LABEL})*")


def mail_address(url: str) -> str | None:
    """The address of a `mailto:` URL; None for URLs of other schemes."""
    return url.removeprefix(MAILTO) if url.startswith(MAILTO) else None


def is_mail_address(text: str) -> bool:
    """Whether mail may be sent to `text`: one address of a domain, without display name.

    It has no quotes, spaces, line breaks or separators of addresses, so it can be part of a
    header and of an SMTP command.
    """
    return len(text) <= ADDRESS_CHARS_MAX and _RECIPIENT.fullmatch(text) is not None


def as_endpoint_url(text: str) -> str:
    """What a person typed: an address becomes its `mailto:` URL, and a URL stays as it is."""
    return MAILTO + text if "@" in text and ":" not in text else text


def sender_address(text: str) -> str:
    """The address of a sender, written `ADDRESS` or `NAME <ADDRESS>`.

    Raises:
        ValueError: it has another form.
    """
    addresses = [address for _, address in getaddresses([text])]
    is_short = len(text) <= ADDRESS_CHARS_MAX and text.isprintable()
    if not (is_short and len(addresses) == 1 and _SENDER.fullmatch(addresses[0])):
        raise ValueError("allowed is an address such as rewind@example.com, or NAME <ADDRESS>")
    return addresses[0]


class MailTls(StrEnum):
    """How connections to a mail server are encrypted."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server that accepts mail from this service, and the account there, if any."""

    host: str
    port: int
    tls: MailTls
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """The server at `smtp[s]://[USER[:PASSWORD]@]HOST:PORT[?tls=none]`; None if `url` is empty.

        `smtp` requires STARTTLS, `smtps` is TLS from the first byte.

        Raises:
            ValueError: the URL has another form; the message omits what may be a password.
        """
        if not url:
            return None
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        is_bare = host is not None and parts.path in ("", "/") and not parts.fragment
        tls = _TLS.get((parts.scheme, parts.query)) if is_bare else None
        if not (host and port and tls):
            raise ValueError(
                "allowed is smtp://USER:PASSWORD@HOST:PORT, smtps://USER:PASSWORD@HOST:PORT, or "
                "smtp://HOST:PORT?tls=none without a user"
            )
        user = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else unquote(parts.password)
        if tls is MailTls.NONE and user is not None:
            raise ValueError("a password is not sent without TLS: omit the user, or tls=none")
        return cls(host, port, tls, user, password)


_TLS: Final = {
    ("smtp", ""): MailTls.STARTTLS,
    ("smtps", ""): MailTls.IMPLICIT,
    ("smtp", "tls=none"): MailTls.NONE,
}


class MailVerdict(StrEnum):
    """What the mail server did with a mail."""

    ACCEPTED = "accepted"
    DEFERRED = "deferred"
    """It may accept the mail later: it is unreachable, or replied with 4xx."""

    REFUSED = "refused"
    """It replied with 5xx: it would refuse the same mail again."""

    NO_SUCH_ADDRESS = "no such address"
    """It replied that the recipient does not exist."""


@dataclass(frozen=True, slots=True)
class MailResult:
    """How an attempt ended. `reply` is what the server said, for the owner of the address."""

    verdict: MailVerdict
    reply: str
    status: int | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the server accepted the mail."""
        return self.verdict is MailVerdict.ACCEPTED
