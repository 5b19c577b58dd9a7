"""People who look at the console under test, asked without a network."""

import re
import time
from types import TracebackType
from typing import Any, Self

import httpx
from fastapi import FastAPI

from app.console.application import with_console
from app.domain.model import NewWebhook, Webhook
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.html_page import HtmlPage
from tests.support.processes.waiting import DEADLINE_S

_GAPS = "Some values are unavailable"
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class ConsoleClient:
    """Somebody with a browser that runs no script; signed in with a key, or with none yet.

    A context manager. No redirect is followed.
    """

    def __init__(self, application: FastAPI, issued: Issued | None) -> None:
        self._token = None if issued is None else issued[1]
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(with_console(application)),
            base_url="http://console.test",
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
        """Ask for a page."""
        return await self.http.get(path, params=query or None)

    async def page(self, path: str, **query: Any) -> HtmlPage:
        """A page that there is."""
        answer = await self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return HtmlPage(answer.text)

    async def whole(self, path: str, **query: Any) -> HtmlPage:
        """A page of the log for which every broker has answered in time, as a busy one may not."""
        end_s = time.monotonic() + DEADLINE_S
        while _GAPS in (page := await self.page(path, **query)).main:
            assert time.monotonic() < end_s, page.main
        return page

    async def csrf(self) -> str:
        """The token of this sign-in, as its pages hold it."""
        found = _CSRF.search((await self.get("/console/jobs")).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, data: dict[str, Any] | None = None) -> httpx.Response:
        """Send a form of a page, with the token that the page would hold."""
        return await self.http.post(path, data={"csrf": await self.csrf(), **(data or {})})

    async def posted(
        self, path: str, data: dict[str, Any] | None = None, status: int = 200
    ) -> HtmlPage:
        """The page that answers a form."""
        answer = await self.post(path, data)
        page = HtmlPage(answer.text)
        assert answer.status_code == status, page.main
        return page


def enabled_webhook(
    store: Store, issued: Issued, url: str = "https://example.com/hooks"
) -> Webhook:
    """A webhook of the account of a key, ENABLED."""
    new = NewWebhook(url, "billing", new_secret(), issued[0].account.id)
    webhook = store.create_webhook(new)
    return store.enable_webhook(webhook.id, webhook.url)
