"""The page on notices matches the code: members, types, bodies, limits and retries."""

import json
import re

from app.api.notice_events import NOTICES
from app.domain.account_notices import (
    ENDPOINTS_PER_ACCOUNT_MAX,
    KEPT_MS,
    PAUSES_S,
    PENDING_PER_ENDPOINT_MAX,
    NoticeType,
)
from app.domain.hours import HOUR_MS
from app.domain.mail_confirmations import (
    PER_ACCOUNT_AND_HOUR_MAX,
    PER_ADDRESS_AND_DAY_MAX,
    VALID_MS,
)
from app.http.notice_endpoints import NoticeEndpointRequest
from app.http.request_bodies import DESCRIPTION_CHARACTERS_MAX
from tests.unit.docs.doc_pages import page, section, table

PAGE = page("notices.md")
UNITS = {"s": 1, "min": 60, "h": 3_600}


def test_every_member_of_an_endpoint_is_documented() -> None:
    documented = {row["member"]: row for row in table(PAGE, "## Registering an endpoint")}
    properties = NoticeEndpointRequest.model_json_schema(by_alias=True)["properties"]
    assert documented.keys() == properties.keys()
    longest = f"up to {DESCRIPTION_CHARACTERS_MAX} characters"
    assert documented["description"]["allowed"].startswith(longest)


def test_every_type_is_documented() -> None:
    assert {row["type"] for row in table(PAGE, "### Types")} == set(NoticeType)


def test_the_notice_that_is_shown_conforms() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", section(PAGE, "## What is sent"), re.DOTALL)
    model, _ = NOTICES[NoticeType.WEBHOOK_DISABLED]
    model.model_validate(json.loads(block))


def test_limits_and_retries_are_those_of_the_code() -> None:
    assert f"An account has up to {ENDPOINTS_PER_ACCOUNT_MAX} endpoints" in PAGE
    assert f"has {PENDING_PER_ENDPOINT_MAX:,} pending notices" in PAGE
    (documented,) = re.findall(r"sent again after (.*?), then given up", PAGE)
    pauses = [amount * UNITS[unit] for amount, unit in _durations(documented)]
    assert pauses == list(PAUSES_S)
    assert KEPT_MS == 3 * 86_400_000
    assert "for up to three days" in PAGE


def test_limits_of_confirmation_mails_are_those_of_the_code() -> None:
    account, address = PER_ACCOUNT_AND_HOUR_MAX, PER_ADDRESS_AND_DAY_MAX
    limits = f"{account} confirmation mails an hour, and {address} a day"
    assert limits in section(PAGE, "## E-mail")
    assert f"{account} an hour, and {address} a day to one address" in page("access.md")
    assert VALID_MS == 24 * HOUR_MS


def _durations(text: str) -> list[tuple[int, str]]:
    return [(int(amount), unit) for amount, unit in re.findall(r"(\d+) (s|min|h)\b", text)]
