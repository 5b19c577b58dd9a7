"""Debian's chromium, controlled as a person would. It reaches loopback addresses only.

Playwright's synchronous interface keeps a loop in the main thread as long as it runs, so a test
that uses a browser runs no loop of its own there; `tests/integration/console` keeps to it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Response,
    WebError,
    expect,
    sync_playwright,
)

from tests.support.processes.server_process import require_program
from tests.support.processes.waiting import DEADLINE_S

LOOPBACK: Final = "127.0.0.1"

WIDE: Final = (1_280, 900)
NARROW: Final = (360, 740)
"""The size of a small phone."""

TABS_MAX: Final = 100
"""The limit of key presses on one page."""

IDLE_MAX: Final = 2
"""Whether scripts run, for the two contexts."""

_OPTIONS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    # Host names other than loopback do not resolve.
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {LOOPBACK}",
)


class Chromium:
    """One headless browser process. A context manager.

    Without the program a test is skipped, and fails in CI.
    """

    def __enter__(self) -> Self:
        program = require_program("chromium-headless-shell", "chromium-headless-shell")
        expect.set_options(timeout=DEADLINE_S * 1_000)
        self._playwright = sync_playwright().start()
        self._idle: list[tuple[tuple[str, bool], Page]] = []
        try:
            self._browser: Browser = self._playwright.chromium.launch(
                executable_path=program, args=[*_OPTIONS]
            )
        except BaseException:
            self._playwright.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    @contextmanager
    def visitor(
        self,
        origin: str,
        *,
        size: tuple[int, int] = WIDE,
        dark: bool = False,
        javascript: bool = True,
    ) -> Iterator["Visitor"]:
        """Yield a visitor without cookies who can open the site `origin` only."""
        kind = (origin, javascript)
        page = self._page(kind)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light")
        try:
            with Visitor(page, origin) as visitor:
                yield visitor
        except BaseException:
            page.context.close()
            raise
        self._keep(kind, page)

    def _page(self, kind: tuple[str, bool]) -> Page:
        """Return the only page of a context without cookies."""
        for number, (idle, page) in enumerate(self._idle):
            if idle == kind:
                del self._idle[number]
                return page
        origin, javascript = kind
        context = self._browser.new_context(
            base_url=origin,
            java_script_enabled=javascript,
            service_workers="block",
            locale="en-GB",
            timezone_id="UTC",
        )
        context.set_default_timeout(DEADLINE_S * 1_000)
        return context.new_page()

    def _keep(self, kind: tuple[str, bool], page: Page) -> None:
        """Keep the page for the next visitor: a context costs as much as ten pages."""
        page.goto("about:blank")
        page.context.clear_cookies()
        self._idle.append((kind, page))
        if len(self._idle) > IDLE_MAX:
            self._idle.pop(0)[1].context.close()


class Visitor:
    """A visitor with separate cookies and a `page`. A context manager.

    At its end the test fails if the page asked anybody but its origin for anything, if one of its
    scripts failed, if the browser's console said that something was refused or missing, or if a
    dialogue came up, which no page of ours opens.
    """

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self._origins = {origin}
        self.complaints: list[str] = []
        self.requests: list[str] = []
        """All requested URLs, in order."""
        self._tolerated: list[str] = []

    def __enter__(self) -> Self:
        context = self.page.context
        context.on("request", self._note_request)
        context.on("console", self._note_message)
        context.on("weberror", self._note_error)
        self.page.on("dialog", self._note_dialog)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        context = self.page.context
        context.remove_listener("request", self._note_request)
        context.remove_listener("console", self._note_message)
        context.remove_listener("weberror", self._note_error)
        self.page.remove_listener("dialog", self._note_dialog)
        if error is None:
            self._assert_content()

    def tolerate(self, *complaints: str) -> None:
        """Allow console errors that match one of these patterns."""
        self._tolerated += complaints

    def allow(self, origin: str) -> None:
        """Allow requests to another site."""
        self._origins.add(origin)

    def tab_to(self, target: Locator) -> None:
        """Press Tab until the element has the focus."""
        for _ in range(TABS_MAX):
            self.page.keyboard.press("Tab")
            if target.evaluate("each => each === document.activeElement"):
                break
        else:
            raise AssertionError(f"Tab does not lead to {target}")
        outline = target.evaluate("each => getComputedStyle(each).outlineStyle")
        assert outline != "none", f"the focus on {target} is invisible"

    def go(self, path: str) -> Response:
        """Open a page of the site and return the response after redirects."""
        response = self.page.goto(path)
        assert response is not None
        return response

    def _assert_content(self) -> None:
        ours = tuple(f"{origin}/" for origin in self._origins)
        strange = [url for url in self.requests if not url.startswith(ours)]
        assert not strange, f"asked elsewhere: {strange}"
        bad = [
            said
            for said in self.complaints
            if not any(re.search(each, said) for each in self._tolerated)
        ]
        assert not bad, "the browser complained:\n" + "\n".join(bad)

    def _note_request(self, request: Request) -> None:
        # Data URLs cause no request.
        if not request.url.startswith("data:"):
            self.requests.append(request.url)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location['url']}")

    def _note_error(self, error: WebError) -> None:
        self.complaints.append(f"script: {error.error}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialogue: {dialog.message}")
        # The page is blocked until the dialog is answered.
        dialog.dismiss()
