"""The checks of the browser fixture itself: each kind of violation is reported."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.support.http.axe import assert_accessible
from tests.support.http.browser import LOOPBACK, Chromium

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]

GOOD = "<h1>Good</h1>"
PAGES = {
    "/good": GOOD,
    "/elsewhere": GOOD + "<img alt='' src='http://192.0.2.1/pixel.png'>",
    "/script": GOOD + "<script>missing.call()</script>",
    "/dialogue": GOOD + "<script>alert('payload')</script>",
    "/pale": GOOD + "<p style='color: #aaa; background: #fff'>hardly to be read</p>",
    "/unlabelled": GOOD + "<input name='key'>",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        main = PAGES.get(self.path, "")
        page = f"<!doctype html><html lang='en'><title>Page</title><main>{main}</main></html>"
        content = page.encode()
        self.send_response(200 if main else 204)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(content) if main else 0))
        self.end_headers()
        if main:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_good_page_has_no_violations(chromium: Chromium, site: str) -> None:
    with chromium.visitor(site) as visitor:
        visitor.go("/good")
        assert_accessible(visitor.page)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/elsewhere", r"asked elsewhere: \['http://192.0.2.1/pixel.png'\]"),
        ("/script", "script: .*missing is not defined"),
        ("/dialogue", "dialogue: payload"),
    ],
)
def test_forbidden_behaviour_of_a_page_is_reported(
    chromium: Chromium, site: str, path: str, complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint), chromium.visitor(site) as visitor:
        visitor.go(path)


@pytest.mark.parametrize(("path", "rule"), [("/pale", "color-contrast"), ("/unlabelled", "label")])
def test_an_inaccessible_page_is_reported_with_the_violated_rule(
    chromium: Chromium, site: str, path: str, rule: str
) -> None:
    with chromium.visitor(site) as visitor:
        visitor.go(path)
        with pytest.raises(AssertionError, match=rf"{rule} \(") as raised:
            assert_accessible(visitor.page)
    assert path in str(raised.value)


def test_visitors_share_no_state(chromium: Chromium, site: str) -> None:
    with chromium.visitor(site) as visitor:
        visitor.go("/good")
        visitor.page.context.add_cookies([{"name": "kept", "value": "1", "url": site}])
    with chromium.visitor(site) as visitor:
        visitor.go("/good")
        assert visitor.page.context.cookies() == []
        assert visitor.requests == [f"{site}/good"]
