"""The page on replays matches the code: options, states, notices, Twitter-compatible endpoint."""

import json
import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from annotated_types import MaxLen

from app.api import twitter_errors
from app.api.models.estimates import EstimateDocument
from app.api.models.replays import AwaitedRestoreDocument
from app.api.twitter import TwitterJob
from app.domain.model import Counts, NewReplay, NewWebhook, Replay, Window
from app.domain.notices import notice_body, notice_id
from app.domain.options import NoticeStyle, Only
from app.domain.states import TERMINAL, TRANSITIONS, ReplayState
from app.domain.windows import TIME_ALLOWED
from app.domain.windows import parse_time as time_ms
from app.http.problems import UNAUTHORIZED
from app.http.request_bodies import ReplayRequest
from app.log.estimate import AT_A_TIME, RECORDS_MAX
from app.services.progress_watch import STREAMS_MAX, STREAMS_PER_KEY_MAX
from app.services.services import ESTIMATES_PER_ACCOUNT_MAX
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated
from tests.unit.docs.doc_pages import page, section, shown, table

PAGE = page("replays.md")
OPTIONS = {row["member"]: row for row in table(PAGE, "## Options")}
SCHEMA = ReplayRequest.model_json_schema(by_alias=True)["properties"]


def test_every_option_of_a_replay_is_documented() -> None:
    assert OPTIONS.keys() == SCHEMA.keys()


def test_options_have_the_documented_defaults_and_bounds() -> None:
    bounded = 0
    for name, row in OPTIONS.items():
        schema = SCHEMA[name]
        numbers = next((each for each in schema.get("anyOf", [schema]) if "minimum" in each), None)
        if numbers is not None:
            bounded += 1
            assert row["allowed"] == f"{numbers['minimum']} to {numbers['maximum']}", name
        default = schema.get("default")
        if isinstance(default, bool | int | str):
            assert row["default"] == shown(default), name
    assert bounded == 3


def test_options_that_are_not_numbers_are_documented() -> None:
    assert OPTIONS["from"]["allowed"] == OPTIONS["to"]["allowed"] == TIME_ALLOWED
    assert OPTIONS["only"]["allowed"] == ", ".join(Only)
    (longest,) = [
        each.max_length
        for each in ReplayRequest.model_fields["event_types"].metadata
        if isinstance(each, MaxLen)
    ]
    assert OPTIONS["eventTypes"]["allowed"] == f"up to {longest} globs"


def documents(heading: str) -> list[Any]:
    """The JSON documents that are shown under a heading."""
    blocks = re.findall(r"```json\n(.*?)```", section(PAGE, heading), re.DOTALL)
    return [json.loads(block) for block in blocks]


def test_the_answer_to_a_dry_run_is_shown_whole() -> None:
    (answer,) = documents("### Dry run")
    assert EstimateDocument.model_validate(answer).model_dump(by_alias=True) == answer
    assert f"Up to {RECORDS_MAX:,} records" in PAGE
    assert (AT_A_TIME, ESTIMATES_PER_ACCOUNT_MAX) == (4, 2)
    documented = "Four estimates run at a time, two of them for the developers of one account"
    assert documented in section(PAGE, "### Dry run").replace("\n", " ")


def test_every_state_is_documented_with_the_next_states() -> None:
    documented = {row["state"]: row["next"] for row in table(PAGE, "## The life of a replay")}
    assert documented.keys() == set(ReplayState)
    for state, moves in TRANSITIONS.items():
        following: set[str] = {each for each in moves.values() if each is not state}
        assert set(documented[state].split(", ")) == (following or {"nothing"}), state


def test_what_a_replay_of_the_archive_waits_for_is_shown_as_it_is() -> None:
    (waits,) = documents("## From the archive")
    assert AwaitedRestoreDocument.model_validate(waits).model_dump(by_alias=True) == waits


def test_the_limits_of_streams_are_documented() -> None:
    documented = f"have {STREAMS_PER_KEY_MAX} streams open, a server has {STREAMS_MAX}"
    assert documented in section(PAGE, "### Progress")


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """A replay that is over, under the names that the page has."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/rewind.db"
    make_migrated(url)
    with closing(Store.open(url)) as store:
        webhook = store.create_webhook(NewWebhook("https://example.com", "", new_secret()))
        replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    return replace(
        replay,
        id="rpl_...",
        webhook_id="wh_...",
        window=Window(time_ms("2026-11-21T06:00:00Z"), time_ms("2026-11-21T08:00:00Z")),
        state=ReplayState.COMPLETED,
        counts=Counts(delivered=16_310, duplicates=12),
        finished_ms=time_ms("2026-11-21T08:10:09Z"),
        lease_epoch=1,
    )


def test_the_notice_that_is_shown_is_the_one_that_is_sent(replay: Replay) -> None:
    assert documents("## Notices") == [json.loads(notice_body(replay))]


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_the_ids_of_notices_are_documented(state: ReplayState, replay: Replay) -> None:
    documented = notice_id(replace(replay, state=state)).replace("rpl_...", "rpl_…")
    assert f"`{documented}`" in section(PAGE, "## Notices")


def test_what_twitters_clients_get_is_shown_as_it_is(replay: Replay) -> None:
    job, status = documents("## Twitter-compatible endpoint")
    assert TwitterJob.model_validate(job).model_dump() == job
    assert json.loads(notice_body(replace(replay, notice=NoticeStyle.TWITTER))) == status


def test_every_code_of_the_twitter_api_is_documented_with_its_status() -> None:
    answers = twitter_errors._ANSWERS.values()
    wanted = {(status, code) for status, code, _ in answers} | {
        (UNAUTHORIZED.status, twitter_errors.BAD_CREDENTIALS),
        (400, twitter_errors.MISSING),
        (400, twitter_errors.MALFORMED),
    }
    rows = table(PAGE, "## Twitter-compatible endpoint")
    assert {(int(row["status"]), int(row["code"])) for row in rows} == wanted
    assert len(rows) == len(wanted)
