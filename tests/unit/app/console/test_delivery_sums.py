"""Sums of deliveries that a process keeps for a short time."""

import pytest
from fastapi import FastAPI

from app.console.delivery_sums import KEPT_MAX, DeliverySumsReader
from app.console.time_ranges import time_ranges
from app.domain.model import Webhook
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store import Store

pytestmark = pytest.mark.anyio

PRESENT_MS = 400_000 * 3_600_000
HOUR, DAY, _ = time_ranges(5, PRESENT_MS)


async def test_sums_are_read_again_after_a_part_of_a_bar(
    application: FastAPI, store: Store, webhook: Webhook
) -> None:
    now_s = [0.0]
    reader = DeliverySumsReader(application.state.services, lambda: now_s[0])
    account = webhook.account_id
    found = []
    for seconds in (0, 59.9, 60, 119.9):
        now_s[0] = seconds
        tally = CountedTally(webhook.id, Span.EVENT, DeliveryTally(PRESENT_MS, failed=1))
        store.add_tallies([tally], origin="here")
        sums = await reader.read(DAY, account)
        found.append((sums.tallies[0].failed, sums.most_missed[0][1].failed))
    assert found == [(1, 1), (1, 1), (3, 3), (3, 3)]
    # Of other ranges and accounts, nothing is known yet.
    assert (await reader.read(DAY, None)).tallies[0].failed == 4
    assert (await reader.read(HOUR, account)).tallies == ()
    assert (await reader.read(DAY, "acc_other")).tallies == ()


async def test_only_the_latest_sums_are_kept(
    application: FastAPI, store: Store, webhook: Webhook
) -> None:
    reader = DeliverySumsReader(application.state.services, lambda: 0.0)
    assert (await reader.read(DAY, None)).tallies == ()
    tally = CountedTally(webhook.id, Span.EVENT, DeliveryTally(PRESENT_MS, failed=1))
    store.add_tallies([tally], origin="here")
    for number in range(KEPT_MAX - 1):
        await reader.read(DAY, f"acc_{number}")
    assert (await reader.read(DAY, None)).tallies == ()
    await reader.read(DAY, "acc_last")
    assert (await reader.read(DAY, None)).tallies != ()
