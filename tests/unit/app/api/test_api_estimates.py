import time

import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from app.domain.model import Webhook
from app.domain.windows import MINUTE_MS, format_time
from app.services.errors import RateLimited
from app.services.limits import AccountSlots
from tests.support.http.api_clients import Issued

NOW_MS = time.time_ns() // 1_000_000


def test_slots_are_limited_per_account_and_not_for_operators(
    developer: Issued, other_developer: Issued, operator: Issued
) -> None:
    places = AccountSlots(1, "tests")
    with places.slot(developer[0]):
        with (
            pytest.raises(RateLimited, match="limit: 1 concurrent tests"),
            places.slot(developer[0]),
        ):
            pytest.fail("there was a second place")
        with places.slot(other_developer[0]), places.slot(operator[0]), places.slot(operator[0]):
            pass
    with places.slot(developer[0]):
        pass


@pytest.mark.anyio
async def test_estimates_of_one_account_leave_room_for_others(
    application: FastAPI,
    developer: Issued,
    developers_client: AsyncClient,
    client: AsyncClient,
    webhook: Webhook,
) -> None:
    start, end = format_time(NOW_MS - 2 * MINUTE_MS), format_time(NOW_MS - MINUTE_MS)
    asked = {"webhookId": webhook.id, "from": start, "to": end, "dryRun": True}
    place = application.state.services.estimate_slots.slot
    with place(developer[0]), place(developer[0]):
        refused = await developers_client.post("/replays", json=asked)
        assert refused.status_code == 429
        assert refused.json()["type"] == "urn:rewind:problem:rate-limited"
        # The log is down: this one came as far as to ask it.
        assert (await client.post("/replays", json=asked)).status_code == 503
    assert (await developers_client.post("/replays", json=asked)).status_code == 503
