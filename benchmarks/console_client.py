"""A client of the console without a browser: it signs in, and keeps event streams open."""

import asyncio
import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from html.parser import HTMLParser
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

_FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
_STREAM_LINE_BYTES_MAX: Final = 2**20


def sign_in(url: str, key: str) -> str:
    """Sign in with a key and return the value of the header `cookie`."""
    status, headers, _ = _request(
        url, "POST", "/console/sign-in", urlencode({"key": key, "next": ""}), _FORM
    )
    assert status == 303, status
    return headers["set-cookie"].partition(";")[0]


def get(url: str, path: str, cookie: str) -> bytes:
    """Return the body of a page or of one of its resources."""
    status, _, body = _request(url, "GET", path, None, {"cookie": cookie})
    assert status == 200, (path, status)
    return body


def _request(
    url: str, method: str, path: str, body: str | None, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage, bytes]:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


class PageReader(HTMLParser):
    """Parses a page: the resources that it loads, and the items that it keeps live."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        """Style sheets, scripts and pictures."""
        self._watched: list[str] = []
        self._list = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store the resources and live items that a tag names."""
        named = {name: value or "" for name, value in attrs}
        if tag == "link":
            self.loads.append(named["href"])
        if tag in ("script", "img") and "src" in named:
            self.loads.append(named["src"])
        if tag == "body":
            self._list = named.get("data-live", "")
        if "data-live-id" in named:
            parts = (named["data-live-id"], named.get("data-version", ""))
            self._watched.append(":".join(filter(None, parts)))

    @property
    def stream(self) -> str:
        """The path of the event stream that the page's script opens."""
        listed = f"&page={quote(self._list)}" if self._list else ""
        return f"/console/live?watch={quote(','.join(self._watched))}{listed}"


class OpenPage:
    """An open page; `changes` counts the updates that it received."""

    def __init__(self) -> None:
        self.is_live = asyncio.Event()
        self.changes = 0

    async def listen(self, url: str, path: str, cookie: str) -> None:
        """Read the stream until this is cancelled."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(
            place.hostname, place.port, limit=_STREAM_LINE_BYTES_MAX
        )
        head = f"GET {path} HTTP/1.1\r\nhost: {place.netloc}\r\ncookie: {cookie}\r\n"
        writer.write(f"{head}accept: text/event-stream\r\n\r\n".encode())
        try:
            status = await reader.readline()
            assert b" 200 " in status, status
            while line := await reader.readline():
                if line.startswith(b"event: clock"):
                    self.is_live.set()
                self.changes += line.startswith(b"event: change")
        finally:
            writer.close()


@asynccontextmanager
async def open_pages(
    url: str, path: str, cookies: list[str], count: int
) -> AsyncIterator[list[OpenPage]]:
    """Open `count` pages, which use the cookies in turn, and wait until all are live."""
    pages = [OpenPage() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(page.listen(url, path, cookies[number % len(cookies)]))
            for number, page in enumerate(pages)
        ]
        await asyncio.gather(*(page.is_live.wait() for page in pages))
        yield pages
        for task in tasks:
            task.cancel()
