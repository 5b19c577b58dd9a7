"""Slow bodies: their timeout, and the limit of concurrent requests."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from httpx import AsyncClient, Response

from app.http import request_limits
from app.services import limits
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.anyio


class Drip:
    """A body without an end until `may_end` is set; `begun` is set when it is read."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        yield b'{"url": '
        self.begun.set()
        await self.may_end.wait()
        yield b"1}"

    async def post(self, client: AsyncClient) -> Response:
        headers = {"content-type": "application/json"}
        async with asyncio.timeout(DEADLINE_S):
            return await client.post("/webhooks", content=self.body(), headers=headers)


async def test_a_body_that_is_too_slow_is_rejected(
    monkeypatch: pytest.MonkeyPatch, client: AsyncClient
) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.05)
    answer = await Drip().post(client)
    assert answer.status_code == 408
    assert answer.json()["type"] == "urn:rewind:problem:request-timeout"
    assert answer.headers["connection"] == "close"


async def test_concurrent_requests_of_a_key_are_limited(
    monkeypatch: pytest.MonkeyPatch,
    developers_client: AsyncClient,
    others_client: AsyncClient,
    client: AsyncClient,
) -> None:
    monkeypatch.setattr(limits, "CONCURRENT_REQUESTS_MAX", 1)
    drip, operators_drip = Drip(), Drip()
    under_way = asyncio.create_task(drip.post(developers_client))
    also_under_way = asyncio.create_task(operators_drip.post(client))
    async with asyncio.timeout(DEADLINE_S):
        await drip.begun.wait()
        await operators_drip.begun.wait()

    refused = await developers_client.get("/webhooks")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["type"] == "urn:rewind:problem:rate-limited"
    assert (await others_client.get("/webhooks")).status_code == 200
    assert (await client.get("/webhooks")).status_code == 200

    drip.may_end.set()
    operators_drip.may_end.set()
    assert [(await each).status_code for each in (under_way, also_under_way)] == [400, 400]
    assert (await developers_client.get("/webhooks")).status_code == 200
