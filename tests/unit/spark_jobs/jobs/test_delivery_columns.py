"""Parsing of deliveries and their outcomes."""

from datetime import UTC, datetime

import pytest

from spark_jobs.errors import UndecodableRecord
from spark_jobs.jobs.delivery_columns import (
    DeliveryRecord,
    parse_delivery,
    parse_outcome,
    parse_replay,
)
from spark_jobs.jobs.delivery_records import event_digest

OUTCOME = (
    b'{"partition":3,"offset":17,"eventId":"evt_1","outcome":"left","attempts":0,"status":null,'
    b'"reason":"late","time":"2026-11-21T09:04:32.007+01:00","durationMs":31.2}'
)


def test_a_delivery_is_identified_by_its_id_and_body() -> None:
    assert parse_delivery(
        "east", DeliveryRecord(3, 17, b"wh_1", b"{}", b"evt_1", b"paid", b"west", b"acme")
    ) == (
        *("wh_1", "west", "evt_1", "paid"),
        event_digest("evt_1", b"{}"),
        "acme",
    )


def test_a_missing_id_is_the_position_and_a_missing_origin_is_local() -> None:
    assert parse_delivery("east", DeliveryRecord(3, 17, b"wh_1", None, None, None, b"", None)) == (
        *("wh_1", "east", "delivery_log-3-17", ""),
        event_digest("delivery_log-3-17", b""),
        None,
    )


def test_invalid_utf_8_is_decoded_as_in_the_service() -> None:
    webhook, _, event, kind, digest, account = parse_delivery(
        "east", DeliveryRecord(0, 0, b"\xff", b"", b"\xfe", b"\xfd", None, b"\xfc")
    )
    assert (webhook, event, kind, account) == ("�", "�", "�", "�")
    assert digest == event_digest("�", b"")


def test_a_record_without_a_key_is_undecodable() -> None:
    with pytest.raises(UndecodableRecord):
        parse_delivery("east", DeliveryRecord(3, 17, None, b"{}", b"evt_1", b"paid", b"east", None))


def test_an_outcome_has_the_origin_and_server_of_its_headers() -> None:
    settled = datetime(2026, 11, 21, 8, 4, 32, 7_000, UTC)
    assert parse_outcome("east", OUTCOME, b"west", b"host-1") == (
        *("west", 3, 17, None, "left", 0, None),
        settled,
        *("late", 31.2, False, "host-1"),
    )
    without_headers = parse_outcome("east", OUTCOME, None, None)
    assert (without_headers[0], without_headers[-1]) == ("east", None)


def test_an_outcome_before_a_scheduled_retry_is_pending() -> None:
    pending = OUTCOME.replace(b'"attempts":0', b'"attempts":3,"retries":"pending"')
    ended = OUTCOME.replace(b'"attempts":0', b'"attempts":9,"retries":"ended"')
    assert parse_outcome("east", pending, None, None)[-2] is True
    assert parse_outcome("east", ended, None, None)[-2] is False


def test_a_replay_outcome_has_counts_by_hour() -> None:
    value = (
        b'{"replayId":"rpl_1","webhookId":"wh_1","epoch":2,"start":7,"hours":'
        b'{"2026-11-21T06":{"delivered":5,"duplicates":1,"failed":2}}}'
    )
    assert parse_replay(value) == (
        *("rpl_1", "wh_1", 2, 7),
        [{"hour": "2026-11-21T06", "delivered": 5, "duplicates": 1, "failed": 2}],
    )
