"""Invalid URLs, keys and responses of the replay service."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from spark_jobs.errors import InvalidOption, RejectedByService
from spark_jobs.jobs.restore.service import ReplayService


class _Page(BaseHTTPRequestHandler):
    """A server of another application."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://user:secret-1@127.0.0.1:1", "k"),
        ("http://[::secret-1", ""),
        ("secret-1", ""),
        ("ftp://secret-1", ""),
        ("http://127.0.0.1:1", "secret-1\nmore"),
        ("http://127.0.0.1:1", "secret-1\x00"),
        ("http://127.0.0.1:1", "secret-1é"),
    ],
)
def test_malformed_urls_and_keys_are_rejected_and_not_quoted(url: str, key: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        ReplayService(url, key)
    assert "secret-1" not in str(raised.value)


def test_another_server_is_rejected(other_server: str) -> None:
    with (
        ReplayService(other_server, "k") as service,
        pytest.raises(RejectedByService, match="is not a Rewind API"),
    ):
        service.fetch_queue()
