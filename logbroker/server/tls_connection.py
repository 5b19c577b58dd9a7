"""A client connection with TLS, whose handshake never blocks the loop.

OpenSSL works on two memory buffers; this module moves their bytes from and to the socket. So one
receive or send carries many TLS records, and a slow peer stops only its own connection.
Handshakes run on other threads; records are encrypted on the loop's, at most `CHUNK_BYTES` at once.
"""

import contextlib
import os
import ssl
from functools import partial
from typing import Any, Final

from logbroker.records.file_span import FileSpan
from logbroker.security.distinguished_name import read_subject
from logbroker.security.principal import USER_KIND, Principal
from logbroker.security.tls import TlsContexts
from logbroker.server.connection import OUTPUT_BYTES_MAX, Connection
from logbroker.server.loop import READ
from logbroker.server.worker_pool import WorkerPool
from logbroker.storage.segment_file import is_cached

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""A connection whose handshake takes longer is closed."""

CHUNK_BYTES: Final = 256 * 1024
"""At most this much is received, or encrypted and sent, at once."""

RECORD_BYTES_MAX: Final = 5 + 2**14 + 2048
"""A TLS record: header, content, and what encryption adds (RFC 5246, section 6.2.3)."""


class TlsResources:
    """What the TLS connections of a broker share: contexts, threads for handshakes, a buffer.

    The buffer is used within one call on the loop's thread.
    """

    def __init__(self, contexts: TlsContexts, handshakes: WorkerPool) -> None:
        self.contexts = contexts
        self.handshakes = handshakes
        self.scratch = memoryview(bytearray(CHUNK_BYTES))


class TlsConnection(Connection):
    """A connection that decrypts what it receives and encrypts what it sends.

    Each step of the handshake runs on another thread, because a signature takes up to some
    milliseconds. Meanwhile nothing is read from the socket.
    """

    _server: TlsResources

    def start_handshake(self, server: TlsResources, context: ssl.SSLContext) -> None:
        """Prepare the handshake, once, before the first event."""
        self._server = server
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = memoryview(b"")
        """Encrypted bytes that the socket did not take."""
        self._is_handshaking = True
        self._has_more = False
        """Whether received bytes wait for space in the receive buffer."""
        self._is_decrypting_soon = False
        self._deadline = self._loop.call_at(
            self._loop.now_s + HANDSHAKE_TIMEOUT_S,
            partial(self._fail_handshake, f"not finished in {HANDSHAKE_TIMEOUT_S:.0f} s"),
        )

    def close(self, reason: str | None = None) -> None:
        """Close the connection; the peer is notified if the socket has space."""
        if self.is_open:
            self._deadline.cancel()
            # Until the handshake is finished, another thread may use the TLS object.
            if not self._is_handshaking:
                with contextlib.suppress(OSError):
                    self._tls.unwrap()
                with contextlib.suppress(OSError):
                    self._flush()
        super().close(reason)

    def _receive(self) -> None:
        if not self._has_more:
            # Encrypted bytes are outside the memory budget: those of a small buffer are few.
            space = self._server.scratch
            if not self.buffer.has_grown:
                space = space[: len(self.buffer.free_space()) + RECORD_BYTES_MAX]
            count = self._receive_into(space)
            if count == 0:
                return
            self._incoming.write(self._server.scratch[:count])
        if self._is_handshaking:
            self._watch(0)
            self._server.handshakes.submit(self._continue_handshake, self._finish_step)
        else:
            self._decrypt()

    def _continue_handshake(self) -> bool:
        """Return whether the handshake is finished; runs on a thread of the pool."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _finish_step(self, result: bool | Exception) -> None:
        if not self.is_open:
            return
        try:
            # An alert, which tells the peer why the handshake failed, is sent too.
            is_sent = self._flush()
        except OSError:
            self.close()
            return
        if isinstance(result, Exception):
            self._fail_handshake(getattr(result, "reason", None) or str(result))
            return
        self._is_blocked = not is_sent
        if result:
            self._is_handshaking = False
            self._deadline.cancel()
            try:
                self._set_principal()
            except ValueError as error:
                self._fail_handshake(str(error))
                return
            # The first request may have arrived with the end of the handshake.
            self._decrypt()
        if self.is_open:
            self._update_events()

    def _fail_handshake(self, reason: str) -> None:
        self._counters.authentication_failures += 1
        self.close(f"TLS handshake failed: {reason}")

    def _set_principal(self) -> None:
        """Name the client after its certificate, if it has sent one.

        Raises:
            ValueError: the certificate's subject cannot be read.
        """
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate:
            self.principal = Principal(USER_KIND, read_subject(certificate))

    def _decrypt(self) -> None:
        """Decrypt what has arrived into the receive buffer, and handle the frames."""
        space, received = self.buffer.free_space(), 0
        self._has_more = has_ended = False
        try:
            while received < len(space):
                # typeshed does not know that it returns an int where a buffer is given.
                count: Any = self._tls.read(len(space) - received, space[received:])
                if count == 0:
                    has_ended = True
                    break
                received += count
            else:
                self._has_more = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.close(f"TLS failed: {error.reason}")
            return
        if self._outgoing.pending > OUTPUT_BYTES_MAX:
            self.close("the client does not read")
            return
        if received:
            self.buffer.add_received(received)
            self._handle_frames()
        elif self._outgoing.pending:
            self.send()
        if has_ended:
            self.close()

    def _decrypt_soon(self) -> None:
        self._is_decrypting_soon = False
        if self.is_open and self._has_more and self._events & READ:
            self._decrypt()

    def _update_events(self) -> None:
        super()._update_events()
        # The selector does not know of received bytes that are in OpenSSL's buffer.
        if self._has_more and self._events & READ and not self._is_decrypting_soon:
            self._is_decrypting_soon = True
            self._loop.call_soon(self._decrypt_soon)

    def _send_output(self) -> bool:
        if not self._flush():
            return True
        return super()._send_output()

    def _send_bytes(self) -> int:
        data = memoryview(self._join_output())
        if len(data) > CHUNK_BYTES:
            self._output.appendleft(data[CHUNK_BYTES:])
            data = data[:CHUNK_BYTES]
        self._output_bytes -= len(data)
        return self._encrypt(data)

    def _send_span(self, span: FileSpan) -> int:
        chunk = FileSpan(span.file, span.position, min(span.length, CHUNK_BYTES))
        if not is_cached(chunk):
            self._load(chunk)
            return 0
        space = self._server.scratch[: chunk.length]
        count = os.preadv(chunk.file.fileno(), [space], chunk.position)
        self._advance_span(span, count)
        return self._encrypt(space[:count])

    def _encrypt(self, data: memoryview) -> int:
        """Encrypt and send; returns the number of bytes, or -1 if the socket is full."""
        self._tls.write(data)
        return len(data) if self._flush() else -1

    def _flush(self) -> bool:
        """Send encrypted bytes; returns whether all of them were sent."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
