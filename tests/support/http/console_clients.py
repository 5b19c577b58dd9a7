"""In-process clients of the console under test."""

import re
import time
from types import TracebackType
from typing import Any, Self

import httpx
from fastapi import FastAPI

from app.console.application import ConsoleSwitch, create_console
from app.domain.model import NewWebhook, Webhook
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.html_page import HtmlPage
from tests.support.processes.waiting import DEADLINE_S

_GAPS = "Some values are unavailable"
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class ConsoleClient:
    """A client without JavaScript that signs in with a key, if it has one.

    A context manager. It does not follow redirects.
    """

    def __init__(self, application: FastAPI, issued: Issued | None) -> None:
        self._token = None if issued is None else issued[1]
        self._csrf_tokens: dict[str, str] = {}  # by the cookies of a session
        front = ConsoleSwitch(application, create_console(application.state.services))
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(front), base_url="http://console.test"
        )

    async def __aenter__(self) -> Self:
        await self.http.__aenter__()
        if self._token is not None:
            answer = await self.http.post("/console/sign-in", data={"key": self._token})
            assert answer.status_code == 303
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.http.__aexit__(error_type, error, traceback)

    async def get(self, path: str, **query: Any) -> httpx.Response:
        """Request a page."""
        return await self.http.get(path, params=query or None)

    async def page(self, path: str, **query: Any) -> HtmlPage:
        """Request a page and assert its success."""
        answer = await self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return HtmlPage(answer.text)

    async def whole(self, path: str, **query: Any) -> HtmlPage:
        """Request a page of the log until all brokers have answered in time."""
        end_s = time.monotonic() + DEADLINE_S
        while _GAPS in (page := await self.page(path, **query)).main:
            assert time.monotonic() < end_s, page.main
        return page

    async def csrf(self) -> str:
        """Return the CSRF token of the session, which all its pages have."""
        cookies = str(self.http.cookies)
        if cookies not in self._csrf_tokens:
            found = _CSRF.search((await self.get("/console/notice-endpoints")).text)
            assert found is not None
            self._csrf_tokens[cookies] = found[1]
        return self._csrf_tokens[cookies]

    async def post(self, path: str, data: dict[str, Any] | None = None) -> httpx.Response:
        """Submit a form with the CSRF token."""
        return await self.http.post(path, data={"csrf": await self.csrf(), **(data or {})})

    async def posted(
        self, path: str, data: dict[str, Any] | None = None, status: int = 200
    ) -> HtmlPage:
        """Submit a form and return the page of the response."""
        answer = await self.post(path, data)
        page = HtmlPage(answer.text)
        assert answer.status_code == status, page.main
        return page


def enabled_webhook(
    store: Store, issued: Issued, url: str = "https://example.com/hooks"
) -> Webhook:
    """Create an ENABLED webhook for the account of a key."""
    new = NewWebhook(url, "billing", new_secret(), issued[0].account.id)
    webhook = store.create_webhook(new)
    return store.enable_webhook(webhook.id, webhook.url)
