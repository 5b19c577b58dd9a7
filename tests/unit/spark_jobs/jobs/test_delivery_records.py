"""The pipeline parses the records that the replay service writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import dedupe
from app.domain.delivery import LiveOutcome
from app.domain.hours import format_hour
from app.domain.model import Counts
from app.domain.options import Source
from app.log import outcomes, replay_outcomes, topics
from app.log.event import place_name as place_name_of_service
from app.log.outcomes import DeliveryOutcome, OutcomeRetries, encode_outcome
from app.log.replay_outcomes import ReplayOutcome, encode_replay_outcome
from spark_jobs.errors import REASON_CHARS_MAX, UndecodableRecord
from spark_jobs.jobs import delivery_records
from spark_jobs.jobs.delivery_records import (
    Outcome,
    default_event_id,
    event_digest,
    parse_delivery_outcome,
    parse_replay_outcome,
    parse_webhook_id,
)

TIMES_MS = st.integers(0, 253_402_300_799_999)
WRITABLE = st.text(st.characters(exclude_categories=["Cs"]))

OUTCOME = (
    b'{"partition":3,"offset":17,"eventId":"evt_1","outcome":"failed","attempts":4,"status":503,'
    b'"reason":"HTTP 503","time":"2026-11-21T08:04:32Z","digest":"fa54b21bafaf1c25",'
    b'"durationMs":31.2}'
)
STRETCH = (
    b'{"replayId":"rpl_1","webhookId":"wh_1","origin":"east","source":"log","epoch":2,"start":7,'
    b'"end":9,"hours":{"2026-11-21T06":{"delivered":5,"duplicates":1,"failed":2}},'
    b'"time":"2026-11-21T08:10:02.000Z"}'
)


def test_topic_names_equal_those_of_the_service() -> None:
    assert delivery_records.DELIVERY_LOG == topics.DELIVERY_LOG
    assert delivery_records.DELIVERY_OUTCOMES == topics.DELIVERY_OUTCOMES
    assert delivery_records.REPLAY_OUTCOMES == topics.REPLAY_OUTCOMES


def test_outcomes_equal_those_of_the_service() -> None:
    assert [each.value for each in Outcome] == [each.value for each in LiveOutcome]


@given(
    st.builds(
        DeliveryOutcome,
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1),
        event_id=WRITABLE,
        outcome=st.sampled_from(LiveOutcome),
        attempts=st.integers(0, 1_000),
        status=st.none() | st.integers(100, 599),
        reason=st.none() | st.text(),
        time_ms=TIMES_MS,
        digest=st.none() | st.integers(0, 2**64 - 1),
        duration_ms=st.none() | st.floats(0, 1e9),
        retries=st.none() | st.sampled_from(OutcomeRetries),
    )
)
def test_every_outcome_of_the_service_is_parsed(written: outcomes.DeliveryOutcome) -> None:
    read = parse_delivery_outcome(encode_outcome(written))
    assert (read.partition, read.offset) == (written.partition, written.offset)
    assert (read.event_id, read.outcome.value) == (written.event_id, written.outcome.value)
    assert (read.attempts, read.status) == (written.attempts, written.status)
    assert (read.reason is None) == (written.reason is None)
    assert read.duration_ms == (written.duration_ms and round(written.duration_ms, 1))
    assert read.time_ms == written.time_ms
    assert read.is_waiting is (written.retries is OutcomeRetries.PENDING)
    assert (None if read.digest is None else read.digest % 2**64) == written.digest


@given(
    st.builds(
        ReplayOutcome,
        replay_id=WRITABLE,
        webhook_id=WRITABLE,
        origin=st.text(),
        source=st.sampled_from(Source),
        epoch=st.integers(0, 2**31 - 1),
        start=st.integers(0, 2**63 - 1),
        end=st.integers(0, 2**63 - 1),
        time_ms=TIMES_MS,
        hours=st.dictionaries(
            st.integers(0, 1_000_000),
            st.builds(Counts, *[st.integers(0, 2**31 - 1)] * 3),
            max_size=5,
        ),
    )
)
def test_every_replay_outcome_of_the_service_is_parsed(
    written: replay_outcomes.ReplayOutcome,
) -> None:
    read = parse_replay_outcome(encode_replay_outcome(written))
    assert (read.replay_id, read.webhook_id) == (written.replay_id, written.webhook_id)
    assert (read.epoch, read.start) == (written.epoch, written.start)
    assert {each.hour: (each.delivered, each.duplicates, each.failed) for each in read.hours} == {
        format_hour(hour): (counts.delivered, counts.duplicates, counts.failed)
        for hour, counts in written.hours.items()
    }


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary())
def test_digests_equal_those_of_the_service(event_id: str, value: bytes) -> None:
    assert event_digest(event_id, value) % 2**64 == dedupe.lasting_digest(event_id, value)


def test_default_event_ids_equal_those_of_the_service() -> None:
    assert default_event_id(3, 17) == place_name_of_service(topics.DELIVERY_LOG, 3, 17)


def test_a_digest_is_the_same_in_every_process() -> None:
    # printf 'evt_1\0{}' | b2sum -l 64
    assert event_digest("evt_1", b"{}") % 2**64 == 0x70BE16CD870BBE8E


def test_the_members_of_an_outcome_are_parsed() -> None:
    read = parse_delivery_outcome(OUTCOME)
    assert read.outcome is Outcome.FAILED
    assert read.time_ms == 1_795_248_272_000
    assert read.digest == 0xFA54B21BAFAF1C25 - 2**64
    assert (read.reason, read.duration_ms) == ("HTTP 503", 31.2)


def test_an_outcome_of_an_older_version_has_no_duration() -> None:
    assert parse_delivery_outcome(OUTCOME.replace(b',"durationMs":31.2', b"")).duration_ms is None


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (OUTCOME, b"", "not JSON"),
        (OUTCOME, b"[1]", "not a JSON object but list"),
        (b'"offset":17,', b"", "missing member 'offset'"),
        (b"17", b"-17", "offset is -17"),
        (b"17", b"17.5", "offset is 17.5"),
        (b"17", b"true", "offset is True"),
        (b"17", b"9223372036854775808", "offset is 9223372036854775808"),
        (b'"partition":3', b'"partition":2147483648', "partition is 2147483648"),
        (b'"failed"', b'"lost"', "'lost' is not a valid Outcome"),
        (b'"failed"', b"[]", "[] is not a valid Outcome"),
        (b"503,", b'"503",', "status is '503'"),
        (b'"evt_1"', b"1", "eventId is 1"),
        (b"08:04:32Z", b"08:04:32", "allowed are RFC 3339 times"),
        (b"2026-11-21T", b"2026-13-21T", "month"),
        (b"2026-11-21T08:04:32Z", b"9999-12-31T23:59:59-01:00", "years 1 to 9999"),
        (b"2026-11-21T08:04:32Z", b"0001-01-01T00:00:00+01:00", "years 1 to 9999"),
        (b'"2026-11-21T08:04:32Z"', b"null", "time is None"),
        (b"fa54", b"FA54", "digest is 'FA54"),
        (b'"HTTP 503"', b"503", "reason is 503"),
        (b"31.2", b'31.2,"retries":1', "retries is 1"),
        (b"31.2", b'31.2,"retries":["ended"]', "retries is ['ended']"),
        (b"31.2", b'"31.2"', "durationMs is '31.2'"),
        (b"31.2", b"true", "durationMs is True"),
        (b"31.2", b"NaN", "durationMs is nan"),
        (b"31.2", b"9" * 400, "durationMs is 999"),
    ],
)
def test_a_malformed_outcome_is_rejected_with_the_reason(
    before: bytes, after: bytes, reason: str
) -> None:
    assert before in OUTCOME
    with pytest.raises(UndecodableRecord) as raised:
        parse_delivery_outcome(OUTCOME.replace(before, after))
    assert reason in raised.value.reason


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b'"epoch":2,', b"", "missing member 'epoch'"),
        (b'"start":7', b'"start":"7"', "start is '7'"),
        (b'"wh_1"', b"null", "webhookId is None"),
        (b'{"2026-11-21T06"', b'{"2026-11-21"', "allowed are hours"),
        (b'{"2026-11-21T06"', b'{"2026-11-31T06"', "allowed are hours"),
        (b'"failed":2', b'"lost":2', "missing member 'failed'"),
        # A few of these would overflow a sum.
        (b'"failed":2', b'"failed":2147483648', "failed is 2147483648"),
        (b'{"delivered":5,"duplicates":1,"failed":2}', b"5", "is 5; allowed is an object"),
    ],
)
def test_a_malformed_replay_outcome_is_rejected_with_the_reason(
    before: bytes, after: bytes, reason: str
) -> None:
    assert before in STRETCH
    with pytest.raises(UndecodableRecord) as raised:
        parse_replay_outcome(STRETCH.replace(before, after))
    assert reason in raised.value.reason


@pytest.mark.parametrize("read", [parse_delivery_outcome, parse_replay_outcome])
def test_a_record_without_a_value_is_rejected(read: object) -> None:
    assert callable(read)
    with pytest.raises(UndecodableRecord, match="no value"):
        read(None)


def test_a_lone_surrogate_is_replaced() -> None:
    assert parse_delivery_outcome(OUTCOME.replace(b"evt_1", b"\\ud800")).event_id == "?"


@pytest.mark.parametrize("key", [None, b"", b"x" * 257])
def test_a_key_that_is_not_a_webhook_id_is_rejected(key: bytes | None) -> None:
    with pytest.raises(UndecodableRecord, match="not a webhook id"):
        parse_webhook_id(key)


def test_a_reason_is_truncated() -> None:
    with pytest.raises(UndecodableRecord) as raised:
        parse_delivery_outcome(OUTCOME.replace(b"17", b'"' + b"9" * 10_000 + b'"'))
    assert len(raised.value.reason) == REASON_CHARS_MAX
