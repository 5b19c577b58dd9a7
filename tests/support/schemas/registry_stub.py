"""A schema registry stub with preset responses that records its requests."""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import quote

References = Sequence[tuple[str, int]]


class RegistryStub:
    """Serves the responses that a test has set over HTTP."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.gate = threading.Event()
        """Requests are answered while the event is set."""
        self.gate.set()
        self._answers: dict[str, tuple[int, bytes]] = {}
        self._ids = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def stop(self) -> None:
        """Close the stub. Further calls do nothing."""
        self.gate.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def add(self, text: str, references: References = ()) -> int:
        """Add a schema with the next id."""
        self._ids += 1
        self.answer(f"/schemas/ids/{self._ids}", 200, _document(text, references))
        return self._ids

    def register(self, subject: str, version: int, text: str, references: References = ()) -> None:
        """Add a schema that other schemas can refer to."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        self.answer(path, 200, _document(text, references))

    def answer(self, path: str, status: int, document: Any) -> None:
        """Set the response for a path. Bytes are sent unchanged."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self._answers[path] = (status, body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                stub.asked.append(self.path)
                stub.headers.append({name.lower(): value for name, value in self.headers.items()})
                stub.gate.wait()
                status, body = stub._answers.get(self.path, _NOT_FOUND)
                # The client has closed the connection.
                with suppress(ConnectionError):
                    self._answer(status, body)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                # An idle connection would occupy a thread of the stub.
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


_NOT_FOUND = (404, b'{"error_code": 40403, "message": "Schema not found"}')


def _document(text: str, references: References) -> dict[str, Any]:
    listed = [
        {"name": subject, "subject": subject, "version": version} for subject, version in references
    ]
    return {"schema": text, "references": listed} if listed else {"schema": text}
