"""A mail server on loopback that keeps what it accepts."""

import base64
import socketserver
import ssl
import threading
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP
from typing import Final, Self

from tests.support.http.certificates import CertificateFiles

LINE_BYTES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class ReceivedMail:
    """A mail, and how it arrived."""

    sender: str
    recipient: str
    raw: bytes
    user: str | None
    is_encrypted: bool

    @property
    def message(self) -> EmailMessage:
        """The parsed message."""
        message = message_from_bytes(self.raw, policy=SMTP)
        assert isinstance(message, EmailMessage)
        return message

    @property
    def text(self) -> str:
        """The decoded text, with `\\n` as line end."""
        return str(self.message.get_content()).replace("\r\n", "\n")


class MailServerThread:
    """A server of SMTP (RFC 5321) on a thread, with STARTTLS and AUTH PLAIN if they are given.

    With TLS it accepts mail on encrypted connections only, and with `password` after a login only.
    `answer` changes its replies.
    """

    def __init__(
        self,
        certificate: CertificateFiles | None = None,
        *,
        user: str = "",
        password: str = "",
        is_implicit: bool = False,
    ) -> None:
        self.mails: list[ReceivedMail] = []
        self.commands: list[str] = []
        self.user, self.password = user, password
        self.is_implicit = is_implicit
        self.replies: dict[str, str] = {}
        self.gate = threading.Event()
        """Commands in `held` wait for it."""
        self.held: set[str] = set()
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate.both)
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The setting for it, with the login if there is one."""
        login = f"{self.user}:{self.password}@" if self.password else ""
        if self.context is None:
            return f"smtp://127.0.0.1:{self.port}?tls=none"
        return f"smtp{'s' if self.is_implicit else ''}://{login}localhost:{self.port}"

    def answer(self, **replies: str) -> None:
        """Reply with these to commands, such as `RCPT="550 5.1.1 unknown"`; `END` is after DATA."""
        self.replies = replies

    def hold(self, *commands: str) -> None:
        """Answer these commands only after `gate` is set."""
        self.held = set(commands)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: MailServerThread) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Session)


class _Session(socketserver.StreamRequestHandler):
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.owner = self.server.owner
        self.is_encrypted = False
        self.user: str | None = None
        self.sender = self.recipient = ""

    def handle(self) -> None:
        try:
            if self.owner.is_implicit:
                self._encrypt()
            self._reply("CONNECT", "220 test ESMTP")
            while line := self.rfile.readline(LINE_BYTES_MAX):
                text = line.decode("ascii").rstrip("\r\n")
                command = text.partition(" ")[0].upper()
                self.owner.commands.append(command)
                if command == "QUIT":
                    self._reply("QUIT", "221 bye")
                    return
                self._handle(command, text)
        except OSError:
            return  # the client has closed the connection

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            return
        finally:
            self.connection.close()

    def _handle(self, command: str, text: str) -> None:
        match command:
            case "EHLO":
                offers = ["250-test", *self._offers(), "250 ENHANCEDSTATUSCODES"]
                self._reply(command, "\r\n".join(offers))
            case "STARTTLS":
                self._reply(command, "220 ready")
                self._encrypt()
            case "AUTH":
                login = base64.b64decode(text.split()[2]).decode().split("\0")
                is_right = login[1:] == [self.owner.user, self.owner.password]
                self.user = login[1] if is_right else None
                self._reply(command, "235 welcome" if is_right else "535 5.7.8 wrong")
            case "MAIL":
                self.sender = text.partition("<")[2].partition(">")[0]
                self._reply(command, "250 OK" if self._may_send() else "530 5.7.0 not yet")
            case "RCPT":
                self.recipient = text.partition("<")[2].rpartition(">")[0]
                self._reply(command, "250 OK")
            case "DATA":
                if self._reply(command, "354 send it").startswith("354"):
                    self._receive()
            case _:
                self._reply(command, "250 OK")

    def _offers(self) -> list[str]:
        offers = []
        if self.owner.context is not None and not self.is_encrypted:
            offers.append("250-STARTTLS")
        if self.owner.password and self.is_encrypted:
            offers.append("250-AUTH PLAIN")
        return offers

    def _may_send(self) -> bool:
        is_private = self.is_encrypted or self.owner.context is None
        return is_private and bool(self.user or not self.owner.password)

    def _receive(self) -> None:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))
        if self._answer("END", "250 2.0.0 queued").startswith("250"):
            mail = (self.sender, self.recipient, b"".join(lines), self.user, self.is_encrypted)
            self.owner.mails.append(ReceivedMail(*mail))
        self._reply("END", "250 2.0.0 queued")

    def _encrypt(self) -> None:
        assert self.owner.context is not None
        self.connection = self.owner.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)
        self.is_encrypted = True

    def _answer(self, command: str, reply: str) -> str:
        return self.owner.replies.get(command, reply)

    def _reply(self, command: str, reply: str) -> str:
        if command in self.owner.held:
            self.owner.gate.wait()
        reply = self._answer(command, reply)
        self.wfile.write(f"{reply}\r\n".encode())
        return reply
