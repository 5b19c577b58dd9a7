"""The parts of a job's page in each state of a replay, with numbers worked out by hand."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from jinja2 import Environment

from app.console.job_parts import (
    MOVES_SHOWN,
    JobView,
    allowed_actions,
    created_by,
    estimated_events_left,
    job_parts,
    timeline_part,
)
from app.console.rendering import environment
from app.domain.model import Counts, OffsetRange, Replay, Window
from app.domain.moves import Move, MoveEvent
from app.domain.options import NoticeStyle, ReplayOptions, Source
from app.domain.receiver_failure import ReceiverFailure
from app.domain.samples import Sample
from app.domain.states import ReplayState
from tests.support.http.html_page import HtmlPage, text_of

NINE_MS = 1_795_338_000_000
"""2026-11-22 09:00:00."""

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"

ONGOING = Replay(
    id="rpl_1",
    account_id="acc_1",
    origin="here",
    source=Source.LOG,
    webhook_id="wh_1",
    window=Window(NINE_MS - 3_600_000, NINE_MS - 1_800_000),
    options=ReplayOptions(),
    retry_of=None,
    notice=NoticeStyle.REWIND,
    state=ReplayState.ONGOING,
    lease_epoch=2,
    claims_without_progress=0,
    worker="machine:7",
    offsets=OffsetRange(partition=3, start=1_000, end=5_000),
    checkpoint=2_000,
    counts=Counts(delivered=400, duplicates=70, failed=30),
    status_counts={"200": 390, "204": 10, "503": 20, "none": 10},
    error=None,
    waiting_for=None,
    awaits=None,
    idle_ms=0,
    created_ms=NINE_MS - 1_000,
    started_ms=NINE_MS,
    heartbeat_ms=NINE_MS + 9_000,
    finished_ms=None,
)

OPEN = replace(
    ONGOING,
    state=ReplayState.OPEN,
    worker=None,
    lease_epoch=0,
    offsets=None,
    checkpoint=None,
    counts=Counts(),
    status_counts={},
    started_ms=None,
    heartbeat_ms=None,
)

COMPLETED = replace(
    ONGOING, state=ReplayState.COMPLETED, checkpoint=5_000, finished_ms=NINE_MS + 100_000
)


@pytest.fixture(scope="module")
def templates() -> Environment:
    return environment(15.0)


def move(event: MoveEvent, number: int = 0, **more: object) -> Move:
    made = Move(event, ReplayState.OPEN, 0, None, None, NINE_MS + number * 1_000)
    return replace(made, **more)  # type: ignore[arg-type]


def parts_of(templates: Environment, view: JobView) -> Mapping[str, HtmlPage]:
    """Return the parsed parts, ten seconds after the start."""
    parts = job_parts(templates, view, NINE_MS + 10_000)
    return {name: HtmlPage(f"<body><main>{markup}</main></body>") for name, markup in parts.items()}


def definitions(part: HtmlPage) -> dict[str, str]:
    """Return the description list of a part."""
    return dict(zip(part.texts(".//dt"), part.texts(".//dd"), strict=True))


def words_of(templates: Environment, replay: Replay) -> Mapping[str, str]:
    parts = parts_of(templates, JobView(replay, (), ()))
    return {name: part.main for name, part in parts.items()}


def test_progress_estimates_the_events_and_the_time_left(
    templates: Environment,
) -> None:
    parts = parts_of(templates, JobView(ONGOING, (), ()))
    assert parts["state"].main == "ONGOING"
    assert parts["progress"].texts(".//p") == ["25 % of 4 000 records read"]
    assert parts["progress"].one(".//progress").get("value") == "0.2500"
    assert definitions(parts["progress"]) == {
        "Delivered": "400",
        "Duplicates": "70",
        "Failed": "30",
        "Left (estimate)": "1 500",
        "Mean rate": "50/s",
        "Time left": "30 s",
    }
    assert parts["eta"].main == "Time left: about 30 s, ETA 2026-11-22 09:00:40."


def test_the_execution_has_worker_and_times_and_the_diagnostics_offsets_and_lease(
    templates: Environment,
) -> None:
    replay = replace(ONGOING, claims_without_progress=4, idle_ms=65_000)
    parts = parts_of(templates, JobView(replay, (), ()))
    facts, diagnostics = definitions(parts["facts"]), definitions(parts["diagnostics"])
    assert facts["Worker"] == "machine:7"
    assert facts["Heartbeat"].startswith("1 s ago")
    assert facts["Idle time"] == "1 min 5 s"
    assert diagnostics["Partition"] == "3 of delivery_log"
    assert diagnostics["Start offset"] == "1 000"
    assert diagnostics["Checkpoint"].startswith("2 000 ")
    assert diagnostics["End offset"].startswith("5 000 ")
    assert diagnostics["Lease epoch"].startswith("2 ")
    assert diagnostics["Claims without progress"].startswith("4 ")
    assert not facts.keys() & diagnostics.keys()


def test_a_job_whose_receiver_fails_says_so_before_anything_is_settled(
    templates: Environment,
) -> None:
    failure = ReceiverFailure(
        1_012, NINE_MS, NINE_MS + 8_000, 503, f"HTTP 503 {HOSTILE}", NINE_MS + 12_000, 676
    )
    replay = replace(ONGOING, counts=Counts(), status_counts={}, receiver_failure=failure)
    words = words_of(templates, replay)
    for expected in (
        f"The receiver fails: HTTP 503 {HOSTILE} (1 012 failed attempts).",
        "Next attempt at 09:00:12 UTC; 676 events wait.",
    ):
        assert expected in words["why"]
    assert words["statuses"].startswith("1 012 failed attempts, and no event delivered")
    assert f"HTTP 503 {HOSTILE}" in words["statuses"]


def test_a_job_that_was_never_claimed(templates: Environment) -> None:
    words = words_of(templates, OPEN)
    assert "a worker" in words["why"]
    assert words["eta"] == "Time left: estimating…"
    assert words["plot"] == "No data yet. Samples are taken while a worker delivers."
    assert words["statuses"] == "Nothing sent yet."
    assert words["failures"] == "None so far."
    assert "determined by the worker" in words["diagnostics"]


def test_the_state_shows_the_waiting_reason_or_the_error(
    templates: Environment,
) -> None:
    waiting = replace(OPEN, waiting_for="the webhook to be enabled")
    failed = replace(COMPLETED, state=ReplayState.FAILED, error="the receiver is gone")
    assert "the webhook to be enabled" in words_of(templates, waiting)["why"]
    assert words_of(templates, failed)["why"] == "the receiver is gone"


def test_an_ended_job_shows_its_duration(templates: Environment) -> None:
    assert words_of(templates, COMPLETED)["eta"] == "Ended after 1 min 40 s, including pauses."
    cancelled = replace(OPEN, state=ReplayState.CANCELLED, finished_ms=NINE_MS)
    assert words_of(templates, cancelled)["eta"] == "Ended before it was started."


def test_responses_have_count_share_and_bar_most_frequent_first(
    templates: Environment,
) -> None:
    statuses = parts_of(templates, JobView(ONGOING, (), ()))["statuses"]
    rows = [[text_of(cell) for cell in row][:3] for row in statuses.all(".//tbody/tr")]
    assert rows == [
        ["200 OK", "390", "90.6 %"],
        ["503 Service Unavailable", "20", "4.6 %"],
        ["204 No Content", "10", "2.3 %"],
        ["no response", "10", "2.3 %"],
    ]
    bars = [(bar.get("class"), bar.get("width")) for bar in statuses.all(".//rect")]
    assert bars[:2] == [("bar-good", "90.7"), ("bar-bad", "4.7")]
    assert bars[3][0] == "bar-bad"


def test_an_unknown_status_is_shown_as_a_number(templates: Environment) -> None:
    replay = replace(ONGOING, status_counts={"299": 1, "799": 2})
    statuses = parts_of(templates, JobView(replay, (), ()))["statuses"]
    assert statuses.texts(".//tbody/tr/th") == ["799", "299"]


def test_statuses_that_were_not_recorded(templates: Environment) -> None:
    words = words_of(templates, replace(ONGOING, status_counts=None))
    assert words["statuses"].startswith("No statuses recorded")


@pytest.mark.parametrize(
    ("state", "failed", "expected"),
    [
        (ReplayState.OPEN, 0, {"pause", "cancel"}),
        (ReplayState.STARTED, 0, {"pause", "cancel"}),
        (ReplayState.ONGOING, 3, {"pause", "cancel"}),
        (ReplayState.PAUSED, 3, {"resume", "cancel"}),
        (ReplayState.COMPLETED, 0, set()),
        (ReplayState.COMPLETED, 3, {"retry"}),
        (ReplayState.FAILED, 3, {"resume", "retry"}),
        (ReplayState.CANCELLED, 3, {"retry"}),
    ],
)
def test_only_actions_that_the_state_allows_have_buttons(
    templates: Environment, state: ReplayState, failed: int, expected: set[str]
) -> None:
    replay = replace(ONGOING, state=state, counts=Counts(failed=failed))
    assert allowed_actions(replay) == expected
    actions = parts_of(templates, JobView(replay, (), ()))["actions"]
    buttons = {button.get("form", "") for button in actions.all(".//button")}
    links = {link.get("href") for link in actions.all(".//a")}
    assert buttons == {f"do-{action}" for action in expected - {"cancel"}}
    assert ("/console/jobs/rpl_1/cancel" in links) == ("cancel" in expected)
    assert "/console/replays/new?cloneOf=rpl_1" in links


def test_the_retry_button_has_the_number_of_failures(templates: Environment) -> None:
    many = replace(COMPLETED, counts=Counts(failed=1_204))
    one = replace(COMPLETED, counts=Counts(failed=1))
    assert "Retry 1 204 failed events" in words_of(templates, many)["actions"]
    assert "Retry 1 failed event" in words_of(templates, one)["actions"]


@pytest.mark.parametrize(
    ("replay", "left"),
    [
        (OPEN, None),
        (ONGOING, 1_500),
        (replace(ONGOING, checkpoint=1_000, counts=Counts()), None),
        (COMPLETED, 0),
    ],
)
def test_events_left_are_extrapolated_from_records_read(replay: Replay, left: int | None) -> None:
    assert estimated_events_left(replay) == left


def test_a_plot_has_a_title_a_description_and_a_table(
    templates: Environment,
) -> None:
    samples = (
        Sample(NINE_MS, 1_000, Counts()),
        Sample(NINE_MS + 10_000, 2_000, Counts(400, 70, 30)),
    )
    parts = parts_of(templates, JobView(ONGOING, (), samples))
    plot, rows = parts["plot"], parts["rows"]
    assert plot.one(".//svg").get("aria-labelledby") == "plot-title plot-words"
    assert plot.texts(".//svg/title") == ["Event rate"]
    (words,) = plot.texts(".//svg/desc")
    assert "500 events" in words
    assert "Events per second: mean 50" in words
    assert plot.texts(".//p") == ["events per second"]
    assert plot.texts(".//div/span") == ["60", "30", "0", "09:00:00", "09:00:05", "09:00:10"]
    assert rows.texts(".//tbody/tr/td") == [
        "2026-11-22 09:00:00",
        "2026-11-22 09:00:10",
        "500",
        "50",
    ]


def test_a_single_sample_has_no_plot(templates: Environment) -> None:
    view = JobView(ONGOING, (), (Sample(NINE_MS, 1_000, Counts()),))
    assert parts_of(templates, view)["plot"].main == (
        "Estimating… The first sample has been taken."
    )


def test_the_timeline_has_event_user_time_and_reason(
    templates: Environment,
) -> None:
    moves = (
        move(MoveEvent.CREATE, 0, actor="key_1"),
        move(MoveEvent.CLAIM, 1, actor="a:1", state=ReplayState.STARTED, lease_epoch=1),
        move(
            MoveEvent.TAKE_OVER,
            60,
            actor="b:2",
            state=ReplayState.STARTED,
            lease_epoch=2,
            reason="silence of a:1",
        ),
    )
    page = parts_of(templates, JobView(ONGOING, moves, ()))["timeline"]
    assert page.texts(".//li") == [
        "Taken over by worker b:2 → STARTED 2026-11-22 09:01:00 · lease epoch 2 silence of a:1",
        "Claimed by worker a:1 → STARTED 2026-11-22 09:00:01 · lease epoch 1",
        "Created by key_1 → OPEN 2026-11-22 09:00:00",
    ]
    assert [item.get("class") for item in page.all(".//li")] == ["takeover", None, None]
    assert created_by(moves) == "key_1"
    assert created_by(moves[1:]) == ""


@pytest.mark.parametrize("event", MoveEvent)
def test_every_event_has_words(templates: Environment, event: MoveEvent) -> None:
    page = HtmlPage(f"<body><main>{timeline_part(templates, (move(event),))}</main></body>")
    assert page.one(".//li/strong").text


def test_a_long_timeline_shows_the_latest_entries_and_the_first(templates: Environment) -> None:
    history = (move(MoveEvent.CREATE), *(move(MoveEvent.CLAIM, each) for each in range(1, 200)))
    page = HtmlPage(f"<body><main>{timeline_part(templates, history)}</main></body>")
    items = page.texts(".//li")
    assert len(items) == MOVES_SHOWN + 2
    assert items[-1].startswith("Created")
    assert items[-2] == f"{200 - MOVES_SHOWN - 1} more. Show all"
    assert page.one(".//li/a").get("href") == "?moves=all#timeline"
    everything = HtmlPage(f"<body><main>{timeline_part(templates, history, None)}</main></body>")
    assert len(everything.all(".//li")) == 200


def test_a_timeline_of_the_maximum_length_is_complete(templates: Environment) -> None:
    history = tuple(move(MoveEvent.CLAIM, each) for each in range(MOVES_SHOWN + 1))
    page = HtmlPage(f"<body><main>{timeline_part(templates, history)}</main></body>")
    assert len(page.texts(".//li")) == MOVES_SHOWN + 1
    assert not page.all(".//a")


def test_external_text_is_escaped(templates: Environment) -> None:
    replay = replace(ONGOING, worker=HOSTILE, state=ReplayState.FAILED, error=HOSTILE)
    replay = replace(replay, status_counts={HOSTILE: 1})
    moves = (move(MoveEvent.TAKE_OVER, actor=HOSTILE, reason=HOSTILE),)
    parts = parts_of(templates, JobView(replay, moves, ()))
    for name in ("why", "facts", "statuses", "timeline"):
        assert HOSTILE in parts[name].main, name
        assert not parts[name].all(".//script"), name
        assert not parts[name].all(".//img"), name


def test_parts_are_stripped(templates: Environment) -> None:
    for replay in (OPEN, ONGOING, COMPLETED):
        for name, markup in job_parts(templates, JobView(replay, (), ()), NINE_MS).items():
            assert markup == markup.strip(), name


def test_the_parts_of_a_long_job_have_less_than_32_kb(
    templates: Environment,
) -> None:
    samples = tuple(
        Sample(NINE_MS + each * 60_000, each * 1_000, Counts(each * each)) for each in range(500)
    )
    moves = tuple(
        move(MoveEvent.RELEASE, each, actor="machine:7", reason="x" * 60) for each in range(200)
    )
    parts = job_parts(templates, JobView(ONGOING, moves, samples), NINE_MS)
    assert sum(map(len, parts.values())) < 32_000
