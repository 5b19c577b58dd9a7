"""The page for webhook owners agrees with the code."""

import json
import time

import pytest
from annotated_types import MaxLen, MinLen
from pydantic import BaseModel

from app.api.models.rules import RuleRequest, SampleMatchDocument
from app.api.models.webhooks import MissedHourDocument, StatisticsDocument, TrialDocument
from app.config import Settings
from app.delivery.attempt import batch_message
from app.domain.delivery import LiveOutcome
from app.domain.endpoint_options import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    RESERVED_HEADERS,
    RESERVED_PREFIXES,
)
from app.domain.globs import glob_matches
from app.domain.model import Validation, WebhookStatus
from app.domain.options import EVENT_TYPES_MAX
from app.domain.patterns import (
    ALTERNATIVES_MAX,
    OPERATORS,
    PATTERN_BYTES_MAX,
    STEPS_MAX,
    compile_alternatives,
)
from app.domain.retry import GONE, PERMANENT, RETRY_AFTER_S_MAX, longest_retries_s
from app.domain.rules import (
    ALTERNATIVES_PER_ACCOUNT_MAX,
    CONDITIONS_MAX,
    GLOBS_PER_ACCOUNT_MAX,
    KINDS_PER_ACCOUNT_MAX,
    KINDS_PER_WEBHOOK_MAX,
    PATH_SETS_PER_ACCOUNT_MAX,
    PATTERNS_PER_ACCOUNT_MAX,
    RULES_PER_WEBHOOK_MAX,
)
from app.domain.scheduled_retries import TOTAL_S_MAX, WAITING_MAX
from app.domain.tallies import CELLS_MAX
from app.http.endpoint_options import (
    PAUSE_S_MAX,
    PAUSES_MAX,
    SECRET_CHARACTERS_MAX,
    TOKEN_CHARACTERS_MAX,
)
from app.http.request_bodies import DESCRIPTION_CHARACTERS_MAX, Rotation, WebhookRequest
from app.live.tally_writer import FLUSH_S
from app.log.event import LoggedEvent
from app.webhooks.challenge import PING_ID_PREFIX, crc_problem
from app.webhooks.endpoint_test import TEST_ID_PREFIX, TEST_TIMEOUT_S
from app.webhooks.guard import URL_CHARACTERS_MAX
from app.webhooks.http_connection import EXCERPT_BYTES
from app.webhooks.request import webhook_headers
from app.webhooks.signing import SECRET_BYTES_MAX, SECRET_BYTES_MIN, new_secret
from app.webhooks.token_cache import DEFAULT_LIFETIME_S, EARLY_S, TOKEN_TIMEOUT_S
from tests.unit.docs.doc_pages import function_shown, page, section, table

PAGE = page("webhooks.md")


@pytest.mark.parametrize(
    ("heading", "number", "model"),
    [
        ("## Registering", 0, WebhookRequest),
        ("## Replacing a secret", 0, Rotation),
    ],
)
def test_every_member_of_a_body_is_documented(
    heading: str, number: int, model: type[BaseModel]
) -> None:
    documented = {row["member"] for row in table(PAGE, heading, number)}
    assert documented == {field.alias for field in model.model_fields.values()}


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("### Testing rules", SampleMatchDocument),
        ("## Test deliveries", TrialDocument),
        ("## Statistics", StatisticsDocument),
        ("## Missed events", MissedHourDocument),
    ],
)
def test_every_member_of_a_receiver_response_is_documented(
    heading: str, model: type[BaseModel]
) -> None:
    documented = [name for row in table(PAGE, heading) for name in row["member"].split(", ")]
    fields = model.model_fields.values()
    assert sorted(documented) == sorted(str(each.serialization_alias) for each in fields)


def test_the_limits_of_options_are_those_of_the_code() -> None:
    text = section(PAGE, "## Requests to your server")
    for name in (*RESERVED_HEADERS, *(f"{each}*" for each in RESERVED_PREFIXES)):
        assert f"`{name}`" in text
    assert f"up to {TOKEN_CHARACTERS_MAX:,} printable" in text
    assert f"`password` (up to {SECRET_CHARACTERS_MAX:,})" in text
    assert f"used until {EARLY_S:g} s before it expires" in text
    assert f"({DEFAULT_LIFETIME_S / 60:g} minutes without `expires_in`)" in text
    assert f"The token server has {TOKEN_TIMEOUT_S:g} s" in text
    (headers,) = (row for row in table(PAGE, "## Registering") if row["member"] == "headers")
    assert (
        headers["allowed"] == f"up to {HEADERS_MAX} headers, {HEADERS_BYTES_MAX:,} bytes together"
    )


def test_the_bounds_of_tests_and_statistics_are_those_of_the_code() -> None:
    trial = section(PAGE, "## Test deliveries")
    assert f"there are {TEST_TIMEOUT_S:g} s" in trial
    assert f"up to {EXCERPT_BYTES:,} bytes" in trial
    assert f"up to\n{CELLS_MAX:,} of them" in section(PAGE, "## Statistics")
    assert FLUSH_S == 5


def test_the_bounds_of_a_registration_are_those_of_the_code() -> None:
    allowed = {row["member"]: row["allowed"] for row in table(PAGE, "## Registering")}
    assert f"up to {URL_CHARACTERS_MAX:,} characters" in allowed["url"]
    assert allowed["description"] == f"up to {DESCRIPTION_CHARACTERS_MAX} characters"
    assert allowed["validation"] == ", ".join(Validation)
    secret = f"whsec_ and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
    assert allowed["secret"] == secret
    lengths = {type(each): each for each in WebhookRequest.model_fields["event_types"].metadata}
    lowest, highest = lengths[MinLen].min_length, lengths[MaxLen].max_length
    assert allowed["eventTypes"] == f"{lowest} to {highest} globs"


def test_the_bounds_of_a_rotation_are_those_of_the_code() -> None:
    grace = Rotation.model_json_schema(by_alias=True)["properties"]["gracePeriodSeconds"]
    (documented,) = [
        row for row in table(PAGE, "## Replacing a secret") if row["member"] == "gracePeriodSeconds"
    ]
    assert documented["default"] == str(grace["default"])
    assert documented["allowed"] == f"{grace['minimum']} to {grace['maximum']}"


def test_every_status_of_a_webhook_is_documented() -> None:
    assert [row["status"] for row in table(PAGE, "## Status")] == list(WebhookStatus)


def test_every_verification_method_is_documented() -> None:
    assert {row["validation"] for row in table(PAGE, "## Verification")} == set(Validation)


def test_the_members_of_a_rule_are_documented_with_their_bounds() -> None:
    documented = {row["member"]: row["allowed"] for row in table(PAGE, "## Rules")}
    assert documented.keys() - {"the name"} == {
        field.alias for field in RuleRequest.model_fields.values()
    }
    assert documented["eventTypes"].startswith(f"1 to {EVENT_TYPES_MAX} globs")
    assert documented["where"].startswith(f"up to {CONDITIONS_MAX} paths")
    assert f"up to {RULES_PER_WEBHOOK_MAX:,} rules, of {KINDS_PER_WEBHOOK_MAX} kinds" in PAGE
    limits = f"{KINDS_PER_ACCOUNT_MAX} kinds, {GLOBS_PER_ACCOUNT_MAX} different globs and"
    assert f"{limits}\n{PATH_SETS_PER_ACCOUNT_MAX} different sets of paths" in PAGE
    patterns = f"{PATTERNS_PER_ACCOUNT_MAX} different patterns"
    assert f"{patterns} with {ALTERNATIVES_PER_ACCOUNT_MAX} alternatives together" in PAGE


def test_the_limits_of_retry_schedules_are_those_of_the_default_settings() -> None:
    text = section(PAGE, "## Retry schedule")
    first, *pauses = Settings().attempt_delays_s
    assert first == 0
    assert "after 3, 27 and 242 s" in text
    assert pauses == [3, 27, 242]
    hours = [each / 3_600 for each in Settings().retry_schedule.scheduled_s]
    assert "30 minutes and 2, 5, 10, 14, 20 and 24 hours" in text
    assert hours == [0.5, 2, 5, 10, 14, 20, 24]
    assert f"together four days ({TOTAL_S_MAX:,} s)" in text
    assert f"first one may be up to {longest_retries_s(pauses):,.0f} s" in text
    assert f"At most {WAITING_MAX:,} events" in text
    assert f"{RETRY_AFTER_S_MAX:g} s counts as {RETRY_AFTER_S_MAX:g} s" in text
    assert f"{len(pauses)} pauses of together {longest_retries_s(pauses):,.0f} s" in text
    (row,) = (row for row in table(PAGE, "## Registering") if row["member"] == "retrySchedule")
    assert row["allowed"].startswith(f"up to {PAUSES_MAX} pauses of 1 to {PAUSE_S_MAX:,} s")


def test_every_operator_of_patterns_is_documented_with_a_valid_example() -> None:
    rows = table(PAGE, "### Patterns")
    assert {row["operator"] for row in rows} == {"a value", *OPERATORS}
    for row in rows:
        compile_alternatives(json.loads(row["example"]))
        assert row["operator"] == "a value" or row["operator"] in row["example"]


def test_the_limits_of_patterns_are_those_of_the_code() -> None:
    text = section(PAGE, "### Patterns")
    assert f"up to {ALTERNATIVES_MAX} alternatives" in text
    assert f"{STEPS_MAX} members\nin a path, and {PATTERN_BYTES_MAX:,} bytes as JSON" in text


def test_the_rules_that_the_page_shows_are_valid() -> None:
    rows = table(PAGE, "## Rules", 1)
    for row in rows:
        RuleRequest.model_validate_json(row["rule"])
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("event_type", "fits"),
    [
        ("follow.created", True),
        ("follow.deleted", True),
        ("dm.sent", True),
        ("dm.sent.read", False),
    ],
)
def test_the_globs_of_the_examples_fit_what_is_said(event_type: str, fits: bool) -> None:
    assert any(glob_matches(glob, event_type) for glob in ("follow.*", "dm.sent")) is fits


def test_every_header_of_a_webhook_is_documented() -> None:
    event = LoggedEvent(0, 0, b"wh_1", "evt_1", "follow.created", b"{}")
    headers = webhook_headers(
        [new_secret()], "evt_1", 1, b"{}", "rpl_1", extra=batch_message([event]).headers
    )
    documented = {row["header"] for row in table(PAGE, "## What a receiver gets", 1)}
    assert documented == {name for name in headers if name.startswith("webhook-")}


def test_the_ids_of_pings_and_test_requests_are_documented() -> None:
    documented = {row["webhook-id"] for row in table(PAGE, "## What a receiver gets")}
    assert {f"{PING_ID_PREFIX}…", f"{TEST_ID_PREFIX}…"} <= documented


@pytest.mark.parametrize(
    ("name", "heading", "number", "column"),
    [
        ("webhooks.md", "## What a receiver gets", 2, "you answer"),
        ("replays.md", "## Retries and failures", 0, "the receiver"),
    ],
)
def test_the_responses_that_disable_a_webhook_are_documented(
    name: str, heading: str, number: int, column: str
) -> None:
    documented = [row[column] for row in table(page(name), heading, number)]
    assert ", ".join(map(str, sorted(PERMANENT))) in documented
    assert any(each.startswith(str(GONE)) for each in documented)


def test_every_outcome_of_a_live_delivery_is_documented() -> None:
    documented = table(page("service.md"), "## The live path", 1)
    assert [row["outcome"] for row in documented] == list(LiveOutcome)


def test_the_answer_to_challenges_shown_to_receivers_is_taken() -> None:
    secret = new_secret()
    answer = function_shown(PAGE, "crc_response")(secret, "token").encode()
    assert crc_problem([secret], "token", answer) is None
    assert crc_problem([new_secret()], "token", answer) is not None


def test_the_verification_shown_to_receivers_takes_what_is_signed_and_nothing_else() -> None:
    is_genuine = function_shown(PAGE, "is_genuine")
    secret, body = new_secret(), b'{"id":"evt_1"}'
    headers = webhook_headers([secret], "evt_1", int(time.time()), body)
    assert is_genuine(secret, headers, body)
    assert not is_genuine(secret, headers, body + b" ")
    assert not is_genuine(new_secret(), headers, body)
    late = webhook_headers([secret], "evt_1", int(time.time()) - 301, body)
    assert not is_genuine(secret, late, body)


def test_while_a_secret_is_replaced_the_verification_takes_either() -> None:
    is_genuine = function_shown(PAGE, "is_genuine")
    old, new, body = new_secret(), new_secret(), b"{}"
    headers = webhook_headers([new, old], "evt_1", int(time.time()), body)
    assert is_genuine(old, headers, body)
    assert is_genuine(new, headers, body)
