"""Open pages and the updates queued for them."""

import json

import pytest

from app.console.live_pages import (
    COUNTERS,
    HEALTH,
    ID_CHARACTERS_MAX,
    ITEMS_MAX,
    OpenPage,
    PageUpdate,
    parse_watch_list,
)
from app.domain.deliveries import DeliveryPlace, format_delivery_id
from app.domain.model import ReplayFilter
from app.http.problems import Problem


def open_page(**versions: str) -> OpenPage:
    return OpenPage(None, ReplayFilter(), versions)


def test_the_watch_list_has_ids_with_versions() -> None:
    assert parse_watch_list("rpl_1:a1,job:rpl_2:b2,health,counters:") == {
        "rpl_1": "a1",
        "job:rpl_2": "b2",
        "health": "",
        "counters": "",
    }
    assert parse_watch_list("") == {}


def test_the_watch_list_has_no_invalid_ids_of_deliveries() -> None:
    valid = format_delivery_id(DeliveryPlace("here", 3, 7))
    watch = f"{valid}:pending.0,{valid}A:pending.0,dlv_x:pending.0,dlv_"
    assert parse_watch_list(watch) == {valid: "pending.0"}


@pytest.mark.parametrize(
    "watch",
    [
        ",".join(f"rpl_{n}" for n in range(ITEMS_MAX + 1)),
        "job:rpl_1,job:rpl_2",
        "settled-wh_1:0.0.0,settled-wh_2:0.0.0",
        "x" * 3 * ID_CHARACTERS_MAX,
    ],
)
def test_a_watch_list_above_a_limit_is_rejected(watch: str) -> None:
    with pytest.raises(Problem, match="watch"):
        parse_watch_list(watch)


def test_the_count_of_a_webhook_is_no_replay() -> None:
    assert parse_watch_list("settled-wh_1:3.4.5") == {"settled-wh_1": "3.4.5"}
    assert OpenPage(None, ReplayFilter(), {"settled-wh_1": "3.4.5"}).replay_ids == set()


def test_a_row_and_a_job_page_are_the_same_replay() -> None:
    shown = OpenPage(None, ReplayFilter(), {"rpl_1": "", "job:rpl_1": "", COUNTERS: "", HEALTH: ""})
    assert shown.replay_ids == {"rpl_1"}


def test_an_item_is_outdated_if_the_page_shows_it_in_another_version() -> None:
    page = open_page(rpl_1="a")
    assert not page.is_outdated("rpl_1", "a")
    assert page.is_outdated("rpl_1", "b")
    assert not page.is_outdated("rpl_2", "b")


def test_a_slow_page_gets_the_latest_update_of_each_item() -> None:
    page = open_page(rpl_1="a", rpl_2="a")
    page.queue_update("rpl_1", "b", "first ")
    page.queue_update("rpl_2", "b", "other ")
    page.queue_update("rpl_1", "c", "second ")
    assert page.has_updates.is_set()
    assert sorted(page.drain_updates().split()) == ["other", "second"]
    assert page.drain_updates() == ""
    assert not page.has_updates.is_set()


def test_an_event_is_one_line_of_json_for_any_content() -> None:
    markup = 'a\nb\r\n\n<b>"\N{LINE SEPARATOR}'
    event = PageUpdate("rpl_1", "v", {"state": markup}).encode()
    head, data, *rest = event.split("\n")
    assert (head, rest) == ("event: change", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == {
        "id": "rpl_1",
        "version": "v",
        "parts": {"state": markup},
    }
