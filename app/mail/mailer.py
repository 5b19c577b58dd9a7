"""Sends mails through the operator's mail server (RFC 5321), on a thread each."""

import asyncio
import logging
import re
import smtplib
import socket
import ssl
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from app.config import Settings
from app.domain.mail import MailResult, MailServer, MailTls, MailVerdict, sender_address
from app.domain.notice_mails import Mail
from app.mail.message import message_bytes
from app.process import on_own_thread

_log: Final = logging.getLogger("rewind.mail")

CONNECTIONS_MAX: Final = 8
"""Connections of a process to its mail server."""

REPLY_CHARS_MAX: Final = 300

_RECIPIENT_OK: Final = (250, 251)
_ACCEPTED: Final = 250
_QUIT_S: Final = 1.0
_PERMANENT: Final = 500

_NO_SUCH_ADDRESS: Final = re.compile(r"5\.1\.(1|2|3|6|10)\b")
"""Enhanced status codes of recipients that do not exist (RFC 3463, section 3.2; RFC 7505)."""


class Mailer:
    """A client of one mail server; every mail has a connection of its own.

    The server is the operator's choice: it may have a private address, unlike webhooks.
    """

    def __init__(
        self, server: MailServer, sender: str, timeout_s: float, password_file: str = ""
    ) -> None:
        self._server = server
        self._sender = sender
        self._timeout_s = timeout_s
        self._password_file = password_file
        self._connections = asyncio.Semaphore(CONNECTIONS_MAX)

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """The client of the server in `settings`; None without one."""
        server = settings.mail_server
        if server is None:
            return None
        return cls(
            server, settings.smtp_from, settings.delivery_timeout_s, settings.smtp_password_file
        )

    async def send(self, mail: Mail) -> MailResult:
        """Send a mail once. Never raises for what the server does.

        The timeout covers the whole attempt, apart from the last step that began before it.
        """
        async with self._connections:
            return await on_own_thread(partial(self._send, mail))

    def _send(self, mail: Mail) -> MailResult:
        server = self._server
        try:
            content = message_bytes(mail, self._sender)
            with _Session(server, time.monotonic() + self._timeout_s) as session:
                if server.user is not None:
                    session.log_in(server.user, self._password())
                session.begin(sender_address(self._sender))
                return session.transmit(mail.address, content)
        except (OSError, ValueError) as error:
            extra = {"server": server.host, "port": server.port, "mail": mail.id}
            _log.warning("mail-server-failed", extra={**extra, "reason": _describe(error)})
            return MailResult(MailVerdict.DEFERRED, "mail server unavailable")

    def _password(self) -> str:
        if self._password_file:
            # Read for each mail, so that a new password needs no restart.
            return Path(self._password_file).read_text(encoding="utf-8").strip()
        return self._server.password or ""


class _Session:
    """A connection whose steps share one deadline, a time of the monotonic clock.

    Its methods raise OSError if there is no connection, the server refuses a step that does not
    depend on the recipient, the certificate is not valid, or no time is left.
    """

    def __init__(self, server: MailServer, end_s: float) -> None:
        self._end_s = end_s
        self._smtp = self._connect(server)
        try:
            if server.tls is MailTls.STARTTLS:
                self._extend_timeout()
                self._smtp.starttls(context=ssl.create_default_context())
            self._extend_timeout()
            self._smtp.ehlo_or_helo_if_needed()
        except BaseException:
            self._smtp.close()
            raise

    def _connect(self, server: MailServer) -> smtplib.SMTP:
        # By default Python finds a name by a DNS lookup without timeout.
        name, timeout_s = socket.gethostname(), self._left_s()
        if server.tls is not MailTls.IMPLICIT:
            return smtplib.SMTP(server.host, server.port, name, timeout_s)
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, name, timeout=timeout_s, context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What the server accepted is sent, whether it answers this or not.
        with suppress(OSError), closing(self._smtp):
            if self._smtp.sock is not None:
                self._smtp.sock.settimeout(_QUIT_S)
                self._smtp.docmd("QUIT")

    def log_in(self, user: str, password: str) -> None:
        """Authenticate by a mechanism that the server offers."""
        self._extend_timeout()
        self._smtp.login(user, password)

    def begin(self, sender: str) -> None:
        """Begin a mail from `sender`. A refusal is for the operator to repair."""
        self._extend_timeout()
        status, reply = self._smtp.mail(sender)
        if status != _ACCEPTED:
            raise smtplib.SMTPResponseException(status, reply)

    def transmit(self, address: str, content: bytes) -> MailResult:
        """Send the recipient and the message; the result is the server's reply."""
        self._extend_timeout()
        status, reply = self._smtp.rcpt(address)
        if status not in _RECIPIENT_OK:
            return _refusal(status, reply, is_recipient=True)
        self._extend_timeout()
        try:
            status, reply = self._smtp.data(content)
        except smtplib.SMTPDataError as error:
            status, reply = error.smtp_code, _bytes(error.smtp_error)
        if status != _ACCEPTED:
            return _refusal(status, reply)
        return MailResult(MailVerdict.ACCEPTED, _text(reply), status)

    def _extend_timeout(self) -> None:
        """Give the next step the time that is left."""
        if self._smtp.sock is not None:
            self._smtp.sock.settimeout(self._left_s())

    def _left_s(self) -> float:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timeout")
        return left_s


def _refusal(status: int, reply: bytes, *, is_recipient: bool = False) -> MailResult:
    text = _text(reply)
    if status < _PERMANENT:
        verdict = MailVerdict.DEFERRED
    elif is_recipient and _NO_SUCH_ADDRESS.match(text):
        verdict = MailVerdict.NO_SUCH_ADDRESS
    else:
        verdict = MailVerdict.REFUSED
    return MailResult(verdict, f"mail server replied {status} {text}".rstrip(), status)


def _text(reply: bytes) -> str:
    """The reply on one line, shortened."""
    return " ".join(reply.decode(errors="replace").split())[:REPLY_CHARS_MAX]


def _bytes(reply: bytes | str) -> bytes:
    return reply.encode() if isinstance(reply, str) else reply


def _describe(error: Exception) -> str:
    """What happened, for the operator, without secrets."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"replied {error.smtp_code} {_text(_bytes(error.smtp_error))}"
    if isinstance(error, UnicodeError):
        # Its message quotes a character of what may be the password.
        return "host, user or password has characters that are not allowed"
    return f"{type(error).__name__}: {error}"[:REPLY_CHARS_MAX]
