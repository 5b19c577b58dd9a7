import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.event_bodies import read_json, read_ndjson
from app.domain.windows import format_time, parse_time
from app.http.error_table import problem_of
from app.http.problems import Problem
from app.log.event import NewEvent
from app.services.errors import RequestRefused
from app.services.events import EventLimits

NOW_MS = parse_time("2026-11-21T08:00:00Z")
RULES = EventLimits(
    NOW_MS - 1_000, NOW_MS + 1_000, event_bytes_max=400, events_max=3, now_ms=NOW_MS
)


def event(**changes: Any) -> dict[str, Any]:
    return {
        "id": "evt_1",
        "type": "follow.created",
        "time": "2026-11-21T09:00:00+01:00",
        "webhookId": "wh_1",
        "data": {"name": "Zoë", "n": [1, 2.5, None, True]},
    } | changes


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def refused(body: bytes, *, by_line: bool = False) -> Problem:
    with pytest.raises(RequestRefused) as caught:
        (read_ndjson if by_line else read_json)(body, RULES)
    return problem_of(caught.value)


def test_the_stored_event_is_compact_json_without_the_webhook() -> None:
    assert read_json(encoded(event()), RULES) == [
        NewEvent(
            webhook_id="wh_1",
            event_id="evt_1",
            event_type="follow.created",
            time_ms=NOW_MS,
            body=(
                '{"id":"evt_1","type":"follow.created","time":"2026-11-21T08:00:00.000Z",'
                '"data":{"name":"Zoë","n":[1,2.5,null,true]}}'
            ).encode(),
        )
    ]


def test_an_event_without_a_webhook_is_accepted() -> None:
    unowed = {name: value for name, value in event().items() if name != "webhookId"}
    assert read_json(encoded(unowed), RULES)[0].webhook_id is None


def test_an_event_may_name_the_account_that_may_receive_it() -> None:
    (found,) = read_json(encoded(event(accountId="acc_1")), RULES)
    assert found.account_id == "acc_1"
    assert b"acc_1" not in found.body
    assert read_json(encoded(event(accountId=None)), RULES)[0].account_id is None


def test_an_array_and_ndjson_and_one_object_give_the_same_events() -> None:
    events = [event(), event(id="evt_2")]
    one_by_one = [read_json(encoded(each), RULES)[0] for each in events]
    assert read_json(b" \n" + encoded(events), RULES) == one_by_one
    lines = b"\r\n\n".join(map(encoded, events)) + b"\n"
    assert read_ndjson(lines, RULES) == one_by_one


def test_an_empty_body_has_no_events() -> None:
    assert read_json(b"[]", RULES) == []
    assert read_ndjson(b"\n \n", RULES) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ""}, "id"),
        ({"id": "a.b"}, "id"),
        ({"id": "a\nb"}, "id"),
        ({"id": "é"}, "id"),
        ({"id": "x" * 257}, "id"),
        ({"id": 7}, "id"),
        ({"type": "two words"}, "type"),
        ({"webhookId": ""}, "webhookId"),
        ({"accountId": ""}, "accountId"),
        ({"accountId": "a" * 257}, "accountId"),
        ({"accountId": 42}, "accountId"),
        ({"webhookID": "wh_1"}, "webhookID"),
        ({"time": "soon"}, "time"),
        ({"time": 1_795_248_000}, "time"),
        ({"time": format_time(NOW_MS + 1_001)}, "time"),
        ({"time": format_time(NOW_MS - 1_001)}, "time"),
        ({"data": [1]}, "data"),
        ({"data": None}, "data"),
        ({"data": {"x": "y" * 400}}, "data"),
        ({"data": {"x": float("nan")}}, "data"),
        ({"data": {"x": float("-inf")}}, "data"),
    ],
)
def test_a_wrong_member_is_named_with_the_index_of_its_event(
    changes: dict[str, Any], field: str
) -> None:
    good, bad = encoded(event()), encoded(event(**changes))
    assert [error.field for error in refused(bad).errors] == [field]
    for body, by_line in ((b"[%b,%b]" % (good, bad), False), (good + b"\n" + bad, True)):
        problem = refused(body, by_line=by_line)
        assert problem.kind.status == 400
        assert [error.field for error in problem.errors] == [f"events[1].{field}"]
        assert problem.errors[0].allowed


def test_events_at_the_limits_of_time_are_accepted() -> None:
    times = [format_time(NOW_MS - 1_000), format_time(NOW_MS + 1_000)]
    assert len(read_json(encoded([event(time=time) for time in times]), RULES)) == 2


def test_a_number_that_overflows_is_rejected() -> None:
    body = encoded(event()).replace(b"2.5", b"1e400")
    assert [error.field for error in refused(body).errors] == ["data"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b'"text"',
        b"[1]",
        b"[{}",
        b"\xff",
        encoded(event()) + b"x",
        encoded(event()).replace(b"Zo", b"\\ud800"),
        encoded(event()).replace(b"2.5", b"[" * 500 + b"]" * 500),
        encoded(event()).replace(b"2.5", b"9" * 5_000),
    ],
)
def test_invalid_events_are_rejected(body: bytes) -> None:
    assert refused(body).kind.status == 400
    if body:
        assert refused(body, by_line=True).kind.status == 400


def test_a_line_with_two_events_is_rejected() -> None:
    two = encoded(event()) + b"," + encoded(event())
    assert refused(two, by_line=True).errors[0].field == "events[0]"


def test_too_many_events_are_rejected_as_too_large() -> None:
    events = [event()] * 4
    assert refused(encoded(events)).kind.status == 413
    assert refused(b"\n".join(map(encoded, events)), by_line=True).kind.status == 413


def test_at_most_twenty_errors_are_listed() -> None:
    problem = refused(encoded([event(id="")] * 50))
    assert len(problem.errors) == 20
    assert problem.detail.endswith("and 30 more")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_never_crash_the_parser(body: bytes) -> None:
    # Sixty bytes are too few for an event.
    for read in (read_json, read_ndjson):
        with contextlib.suppress(RequestRefused):
            assert read(body, RULES) == []


def test_an_event_without_a_time_happened_now() -> None:
    (event,) = read_json(b'{"id": "evt_1", "type": "made", "data": {}}', RULES)
    assert event.time_ms == NOW_MS
    assert json.loads(event.body)["time"] == format_time(NOW_MS)
