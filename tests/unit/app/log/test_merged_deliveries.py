"""Lists of several groups of webhooks, merged by time."""

import random

import pytest

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.log.deliveries import DeliveryPage, DeliverySummary, WebhookGroup, merge_pages
from app.log.deliveries.merging import IS_OVER, MergedPage, parse_groups
from app.log.deliveries.query import parse_delivery_cursor
from app.log.errors import BrowseRefused

FAILED, PENDING = DeliveryStatus.FAILED, DeliveryStatus.PENDING


def delivery(partition: int, offset: int, status: DeliveryStatus) -> DeliverySummary:
    """A delivery at a time that grows with its offset."""
    time_ms = 10 * offset + partition
    settled_ms = None if status is PENDING else time_ms
    place = DeliveryPlace("here", partition, offset)
    return DeliverySummary(place, "wh_1", "evt_1", "made", time_ms, status, settled_ms=settled_ms)


def page_of(
    partition: int, offsets: list[int], cursor: str | None, limit: int, status: DeliveryStatus
) -> DeliveryPage:
    """A page of deliveries at falling `offsets`, as the reader returns it."""
    position = None if cursor is None else parse_delivery_cursor(cursor)
    end = None
    if position is not None:
        end = position.pending_end if status is PENDING else position.outcomes_end
    left = [each for each in offsets if end is None or each < end]
    shown = tuple(left[:limit])
    following = None if len(left) <= limit else f"s{shown[-1]}"
    if following is not None and status is PENDING:
        following = f"p{shown[-1]}.s0"
    items = tuple(delivery(partition, each, status) for each in shown)
    return DeliveryPage(items, following, is_partial=False, from_ms=0, offsets=shown)


@pytest.mark.parametrize("status", [FAILED, PENDING])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_have_every_delivery_once_the_latest_first(
    status: DeliveryStatus, limit: int
) -> None:
    chosen = random.Random(limit)
    partitions = [sorted(chosen.sample(range(50), n), reverse=True) for n in (12, 0, 1, 30)]
    groups = tuple(WebhookGroup((f"wh_{n}", f"wh_{n}a")) for n in range(len(partitions)))
    found: list[DeliverySummary] = []
    while True:
        read = [each for each in groups if each.cursor != IS_OVER]
        pages = [
            page_of(number, partitions[number], each.cursor, limit, status)
            for each in read
            for number in [int(each.webhook_ids[0][3:])]
        ]
        merged = merge_pages(read, pages, limit)
        assert len(merged.items) <= limit
        found += merged.items
        if merged.next_cursor is None:
            break
        groups = parse_groups(merged.next_cursor)
    expected = [
        delivery(number, each, status)
        for number, offsets in enumerate(partitions)
        for each in offsets
    ]
    assert found == sorted(expected, key=lambda each: -each.time_ms)


def test_a_cursor_names_the_webhooks_that_have_no_more() -> None:
    groups = (WebhookGroup(("wh_1", "wh_2"), "s7"), WebhookGroup(("wh_3",), IS_OVER))
    cursor = MergedPage((), groups).next_cursor
    assert cursor == "s7-wh_1-wh_2~-wh_3"
    assert parse_groups(cursor) == groups
    assert MergedPage((), (WebhookGroup(("wh_3",), IS_OVER),)).next_cursor is None
    assert MergedPage((), ()).next_cursor is None


@pytest.mark.parametrize("wrong", ["", "~", "s7", "s7-", "x-wh_1", "s7-wh_1~", "s7-wh 1", "-"])
def test_an_invalid_cursor_is_refused(wrong: str) -> None:
    with pytest.raises(BrowseRefused):
        parse_groups(wrong)
