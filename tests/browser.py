"""Debian's chromium, driven as a person would drive it: nobody but the loopback can be reached.

Playwright's synchronous interface keeps a loop in the main thread as long as it runs, so a test
that uses a browser runs no loop of its own there; `tests/integration/console` keeps to it.
"""

import re
from types import TracebackType
from typing import Final, Self

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)
from processes import DEADLINE_S, require_program

LOOPBACK: Final = "127.0.0.1"

WIDE: Final = (1_280, 900)
NARROW: Final = (360, 740)
"""A small telephone; pages are to be readable on it."""

TABS_MAX: Final = 100
"""Steps of a page that nobody would take more of."""

_OPTIONS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    # Whatever a page or the browser itself looks for elsewhere, it finds no address.
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {LOOPBACK}",
)


class Chromium:
    """One browser process, without a window. A context manager.

    Without the program a test is skipped, and fails in CI.
    """

    def __enter__(self) -> Self:
        program = require_program("chromium", "chromium")
        expect.set_options(timeout=DEADLINE_S * 1_000)
        self._playwright = sync_playwright().start()
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

    def visitor(
        self,
        origin: str,
        *,
        size: tuple[int, int] = WIDE,
        dark: bool = False,
        javascript: bool = True,
    ) -> "Visitor":
        """Somebody new, who knows and has nothing yet, and sees the site `origin` alone."""
        context = self._browser.new_context(
            base_url=origin,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            service_workers="block",
            locale="en-GB",
            timezone_id="UTC",
        )
        context.set_default_timeout(DEADLINE_S * 1_000)
        return Visitor(context, origin)


class Visitor:
    """Somebody at a browser, with cookies and a `page` of their own. A context manager.

    At its end the test fails if the page asked anybody but its origin for anything, if one of its
    scripts failed, if the browser's console said that something was refused or missing, or if a
    dialogue came up, which no page of ours opens.
    """

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self._context = context
        self._origins = {origin}
        self.complaints: list[str] = []
        self.requests: list[str] = []
        """Every URL that was asked for, in order."""
        self._tolerated: list[str] = []
        context.on("request", self._note_request)
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self.complaints.append(f"script: {error.error}"))
        self.page: Page = context.new_page()
        self.page.on("dialog", self._note_dialog)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._context.close()
        if error is None:
            self._assert_content()

    def tolerate(self, *complaints: str) -> None:
        """Let complaints be in which one of these patterns is found."""
        self._tolerated += complaints

    def allow(self, origin: str) -> None:
        """Let pages of another site be asked for as well."""
        self._origins.add(origin)

    def tab_to(self, target: Locator) -> None:
        """Press Tab until the focus is there, as a person does who has no mouse."""
        for _ in range(TABS_MAX):
            self.page.keyboard.press("Tab")
            if target.evaluate("each => each === document.activeElement"):
                break
        else:
            raise AssertionError(f"Tab does not lead to {target}")
        outline = target.evaluate("each => getComputedStyle(each).outlineStyle")
        assert outline != "none", f"nobody sees that the focus is on {target}"

    def go(self, path: str) -> Response:
        """Open a page of the site: the answer, after redirects."""
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
        # What a document carries within itself is asked of nobody.
        if not request.url.startswith("data:"):
            self.requests.append(request.url)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location['url']}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialogue: {dialog.message}")
        # The page stands still until somebody answers.
        dialog.dismiss()
