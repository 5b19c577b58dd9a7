"""What an open page shows, and what is new to it."""

import json

import pytest

from app.api.problems import Problem
from app.console.live.seats import (
    COUNTERS,
    HEALTH,
    ID_CHARACTERS_MAX,
    WATCHED_MAX,
    Change,
    Seat,
    parse_watch,
)
from app.domain.filters import ReplayFilter


def seat(**seen: str) -> Seat:
    return Seat(None, ReplayFilter(), seen)


def test_a_page_names_what_it_shows_with_versions() -> None:
    assert parse_watch("rpl_1:a1,job:rpl_2:b2,health,counters:") == {
        "rpl_1": "a1",
        "job:rpl_2": "b2",
        "health": "",
        "counters": "",
    }
    assert parse_watch("") == {}


@pytest.mark.parametrize(
    "watch",
    [
        ",".join(f"rpl_{n}" for n in range(WATCHED_MAX + 1)),
        "job:rpl_1,job:rpl_2",
        "x" * 3 * ID_CHARACTERS_MAX,
    ],
)
def test_a_page_cannot_name_more_than_one_has(watch: str) -> None:
    with pytest.raises(Problem, match="watch"):
        parse_watch(watch)


def test_a_row_and_a_page_of_its_own_are_the_same_replay() -> None:
    shown = Seat(None, ReplayFilter(), {"rpl_1": "", "job:rpl_1": "", COUNTERS: "", HEALTH: ""})
    assert shown.replay_ids == {"rpl_1"}


def test_a_page_is_told_of_another_version_of_what_it_shows_and_of_nothing_else() -> None:
    page = seat(rpl_1="a")
    assert not page.shows_otherwise("rpl_1", "a")
    assert page.shows_otherwise("rpl_1", "b")
    assert not page.shows_otherwise("rpl_2", "b")


def test_of_two_changes_of_one_thing_a_slow_page_gets_the_last() -> None:
    page = seat(rpl_1="a", rpl_2="a")
    page.tell("rpl_1", "b", "first ")
    page.tell("rpl_2", "b", "other ")
    page.tell("rpl_1", "c", "second ")
    assert page.woken.is_set()
    assert sorted(page.take().split()) == ["other", "second"]
    assert page.take() == ""
    assert not page.woken.is_set()


def test_an_event_is_one_line_of_json_whatever_is_in_it() -> None:
    markup = 'a\nb\r\n\n<b>"\N{LINE SEPARATOR}'
    event = Change("rpl_1", "v", {"state": markup}).encode()
    head, data, *rest = event.split("\n")
    assert (head, rest) == ("event: change", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == {
        "id": "rpl_1",
        "version": "v",
        "parts": {"state": markup},
    }
