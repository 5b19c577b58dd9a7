"""A job's own page and its forms, as people use them whose browser runs no script."""

import logging

import httpx
import pytest

from app.config import Settings
from app.console.formats import NOTHING
from app.console.job_parts import JobView, job_parts
from app.console.rendering import environment
from app.domain.model import Claim, Counts, Failure, NewReplay, OffsetRange, Replay, Webhook, Window
from app.domain.options import Only, ReplayOptions
from app.domain.states import ReplayState
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage, text_of

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"

WINDOW = Window(1_795_330_800_000, 1_795_334_400_000)
"""2026-11-22, from 07:00 to 08:00."""

ELSEWHERE = "elsewhere"

ACTIONS = ("/pause", "/resume", "/cancel", "/retry")

OPTIONS = ReplayOptions(
    event_types=("follow.*", "dm.sent"),
    only=Only.FAILED,
    max_events_per_second=250,
    max_in_flight=3,
    batch_size=20,
    target_url="https://elsewhere.example/hooks",
)


@pytest.fixture
def replay(store: Store, webhook: Webhook, developer: Issued) -> Replay:
    """One that waits for a worker of a data centre whose log nobody here can ask."""
    new = NewReplay(webhook.id, WINDOW, origin=ELSEWHERE)
    return store.create_replay(new, actor=developer[0].id)[0]


@pytest.fixture
def claim(store: Store, replay: Replay) -> Claim:
    """Of the one, by a worker that delivers it."""
    return delivered_by(store, ELSEWHERE, OffsetRange(partition=3, start=1_000, end=5_000))


def delivered_by(store: Store, origin: str, offsets: OffsetRange) -> Claim:
    """What a worker of a data centre claims, and begins to deliver."""
    claim = store.claim("machine:7", lease_s=60, origin=origin)
    assert claim is not None
    assert store.begin_delivery(claim.lease, offsets)
    return claim


def failure(number: int, reason: str = "status 503") -> Failure:
    return Failure(
        offset=1_000 + number,
        event_id=f"evt_{number}",
        attempts=6,
        status=503,
        reason=reason,
        duration_ms=1_250,
        response="try later",
    )


def give_up(store: Store, claim: Claim, *failures: Failure) -> None:
    """Have a quarter read, of which these failed and ten events were taken."""
    counts = Counts(delivered=10, failed=len(failures))
    statuses = {"200": 10, "503": len(failures)}
    assert store.checkpoint(claim.lease, 2_000, counts, failures, statuses, with_sample=True)


@pytest.fixture
def retriable(store: Store, claim: Claim) -> Replay:
    """The one, over, with an event that was given up."""
    give_up(store, claim, failure(1))
    assert store.complete(claim.lease)
    return store.replay(claim.replay.id)


def path(replay: Replay, action: str = "") -> str:
    return f"/console/jobs/{replay.id}{action}"


def facts(page: HtmlPage) -> dict[str, str]:
    """All lists of names and values of a page, as one."""
    return dict(zip(page.texts(".//main//dt"), page.texts(".//main//dd"), strict=True))


async def followed(client: ConsoleClient, answer: httpx.Response) -> HtmlPage:
    """The page that a browser shows after a form."""
    assert answer.status_code == 303, answer.text
    return HtmlPage((await client.http.get(answer.headers["location"])).text)


async def test_the_page_tells_all_that_was_asked_for(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, developer: Issued
) -> None:
    new = NewReplay(webhook.id, WINDOW, OPTIONS, origin=ELSEWHERE)
    replay, _ = store.create_replay(new, actor=developer[0].id)
    page = await developers_client.page(path(replay))
    assert text_of(page.one(".//h1")) == f"Job {replay.id} OPEN"
    told = facts(page)
    assert told["Webhook"] == f"{webhook.id} billing"
    assert page.one(".//main//dl//a").get("href") == f"/console/webhooks/{webhook.id}"
    assert told["Window"].startswith("2026-11-22 07:00:00 to 2026-11-22 08:00:00")
    assert told["Event types"] == "follow.*, dm.sent"
    assert told["Events"] == "only those that no live delivery has brought"
    assert told["Rate, at most"] == "250/s"
    assert told["In flight, at most"] == "3"
    assert told["Events in a request"] == "up to 20"
    assert told["Sent to"] == "https://elsewhere.example/hooks"
    assert told["Source"] == "log"
    assert told["Notice of the end"] == "rewind"
    assert told["Asked for"].endswith(f"by {developer[0].id}")
    assert told["Account"] == webhook.account_id
    assert told["Data centre"] == ELSEWHERE


async def test_the_page_of_a_job_under_way_shows_where_it_stands(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    give_up(store, claim, failure(1))
    page = await client.page(path(replay))
    assert text_of(page.one(".//h1")).endswith("ONGOING")
    assert facts(page)["Worker"] == "machine:7"
    assert "Claimed by worker machine:7" in page.main
    assert page.texts(".//*[@data-live='statuses']//tbody/tr/th") == [
        "200 OK",
        "503 Service Unavailable",
    ]


async def test_the_page_holds_the_parts_that_the_stream_replaces(
    developers_client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    page = await developers_client.page(path(replay))
    templates = environment(15.0)
    view = JobView(store.replay(replay.id), store.moves(replay.id), store.samples(replay.id))
    thing = page.one(f".//*[@data-live-id='job:{replay.id}']")
    shown = {part.get("data-live") for part in thing.iter() if part.get("data-live")}
    assert shown == set(job_parts(templates, view, 0))


async def test_failures_show_what_was_tried_and_answered(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    no_answer = Failure(1_500, "evt_9", 6, None, "connection refused")
    give_up(store, claim, failure(1), no_answer)
    page = await client.page(path(replay))
    table = page.one(".//*[@aria-label='Failed events']/table")
    first, second = ([text_of(cell) for cell in row] for row in table.findall("tbody/tr"))
    assert first[:6] == ["evt_1", "1 001", "6", "503", "status 503", "1 250 ms"]
    assert first[6] == "Response try later"
    assert second == ["evt_9", "1 500", "6", "no answer", "connection refused", NOTHING, NOTHING]
    assert [text_of(each) for each in table.findall(".//details/pre")] == ["try later"]


async def test_operators_come_from_a_job_to_its_messages_and_developers_are_shown_no_such_way(
    client: ConsoleClient,
    developers_client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, origin=settings.origin))
    offsets = OffsetRange(partition=3, start=1_000, end=5_000)
    give_up(store, delivered_by(store, settings.origin, offsets), failure(1))
    messages = "/console/log/topics/delivery_log/messages?from=offset"
    ways = [
        href
        for link in (await client.page(path(replay))).all(".//main//a")
        if (href := link.get("href", "")).startswith(messages)
    ]
    place = f"{messages}&partition={offsets.partition}"
    assert ways == [f"{place}&offset={offsets.start}", f"{place}&offset=1001"]
    links = (await developers_client.page(path(replay))).all(".//a")
    assert not [link for link in links if "/console/log" in link.get("href", "")]


async def test_no_way_leads_from_a_job_to_the_log_of_another_data_centre(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    give_up(store, claim, failure(1))
    page = await client.page(path(replay))
    assert not [link for link in page.all(".//main//a") if "/log/" in link.get("href", "")]


async def test_failures_come_a_page_at_a_time(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    give_up(store, claim, *(failure(number) for number in range(51)))
    first = await client.page(path(replay))
    assert len(first.all(".//*[@aria-label='Failed events']//tbody/tr")) == 50
    (link,) = first.all(".//nav[@aria-label='Pages of failures']/a")
    second = await client.page(path(replay) + link.get("href", ""))
    assert second.texts(".//*[@aria-label='Failed events']//tbody/tr/th") == ["evt_50"]
    (back,) = second.all(".//nav[@aria-label='Pages of failures']/a")
    assert back.get("href") == f"{path(replay)}#failures"


async def test_a_cursor_of_no_page_is_refused(client: ConsoleClient, replay: Replay) -> None:
    answer = await client.get(path(replay), cursor="nonsense")
    assert answer.status_code == 400
    assert "cursor is &#39;nonsense&#39;" in answer.text


async def test_all_that_happened_is_shown_to_who_asks_for_it(
    client: ConsoleClient, store: Store, replay: Replay
) -> None:
    for _ in range(20):
        store.pause_replay(replay.id)
        store.resume_replay(replay.id)
    page = await client.page(path(replay))
    items = page.texts(".//ol/li")
    assert "10 more between. Show all" in items
    everything = await client.page(path(replay), moves="all")
    assert len(everything.all(".//ol/li")) == 41
    assert not everything.all(".//*[@data-live='timeline']")


async def test_a_webhook_that_was_deleted_is_still_named(
    client: ConsoleClient, store: Store, replay: Replay, webhook: Webhook
) -> None:
    store.delete_webhook(webhook.id)
    page = await client.page(path(replay))
    assert facts(page)["Webhook"] == f"{webhook.id} deleted since"
    assert "its webhook was deleted" in page.main


async def test_pause_and_resume_change_the_job_and_say_so(
    developers_client: ConsoleClient, store: Store, replay: Replay, developer: Issued
) -> None:
    client = developers_client
    paused = await followed(client, await client.post(path(replay, "/pause")))
    assert store.replay(replay.id).state is ReplayState.PAUSED
    assert paused.texts(".//main//*[@class='notice']") == ["The job is paused."]
    assert [each.get("form") for each in paused.all(".//main//button[@form]")] == ["do-resume"]
    resumed = await followed(client, await client.post(path(replay, "/resume")))
    assert store.replay(replay.id).state is ReplayState.OPEN
    assert resumed.texts(".//main//*[@class='notice']") == ["The job goes on."]
    assert [move.actor for move in store.moves(replay.id)] == [developer[0].id] * 3


async def test_the_forms_on_the_page_are_those_that_its_buttons_send(
    client: ConsoleClient, replay: Replay
) -> None:
    page = await client.page(path(replay))
    (button,) = page.all(".//main//button[@form]")
    form = page.one(f".//main//form[@id='{button.get('form')}']")
    assert (form.get("method"), form.get("action")) == ("post", path(replay, "/pause"))
    fields = page.fields(f".//main//form[@id='{button.get('form')}']")
    answer = await client.http.post(form.get("action", ""), data=fields)
    assert answer.headers["location"] == f"{path(replay)}?did=pause"


async def test_cancelling_asks_first_and_says_what_is_left(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    give_up(store, claim, failure(1), failure(2))
    question = await client.page(path(replay, "/cancel"))
    assert "10 events are delivered, 2 given up" in question.main
    # A quarter brought twelve.
    assert "About 36 events are left, in 3 000 records" in question.main
    assert store.replay(replay.id).state is ReplayState.ONGOING
    form = question.one(".//main//form")
    fields = question.fields(".//main//form")
    answer = await client.http.post(form.get("action", ""), data=fields)
    page = await followed(client, answer)
    assert page.texts(".//main//*[@class='notice']") == ["The job is cancelled."]
    assert store.replay(replay.id).state is ReplayState.CANCELLED


async def test_cancelling_what_nobody_has_begun_says_that_all_is_left(
    client: ConsoleClient, replay: Replay
) -> None:
    question = await client.page(path(replay, "/cancel"))
    assert "0 events are delivered" in question.main
    assert "All of it is left: no worker has begun to deliver." in question.main


async def test_a_job_that_moved_on_meanwhile_is_left_as_it_is(
    client: ConsoleClient, store: Store, replay: Replay
) -> None:
    store.cancel_replay(replay.id)
    before = store.replay(replay.id)
    for action in ACTIONS:
        answer = await client.post(path(replay, action))
        assert answer.headers["location"] == f"{path(replay)}?did=moved-on", action
    # Neither is the question asked any more.
    page = await followed(client, await client.get(path(replay, "/cancel")))
    (notice,) = page.all(".//main//*[@role='status']")
    assert text_of(notice) == "The job had moved on meanwhile, and was left as it is."
    assert notice.get("class") == "notice bad-news"
    assert store.replay(replay.id) == before


async def test_a_retry_is_a_new_job_with_a_way_back(
    client: ConsoleClient, store: Store, retriable: Replay
) -> None:
    page = await client.page(path(retriable))
    assert "Retry the 1 failed event only" in page.main
    fields = page.fields(".//form[@id='do-retry']")
    answer = await client.http.post(path(retriable, "/retry"), data=fields)
    retry = await followed(client, answer)
    assert retry.texts(".//main//*[@class='notice']") == [
        "A job is queued that sends the failed events again."
    ]
    told = facts(retry)
    assert told["Retry of"].startswith(retriable.id)
    # Pressed once more, the button of the same page leads to the same job.
    again = await client.http.post(path(retriable, "/retry"), data=fields)
    assert again.headers["location"] == answer.headers["location"]


async def test_no_retry_is_queued_while_another_job_of_the_webhook_is_not_over(
    client: ConsoleClient, store: Store, retriable: Replay
) -> None:
    other, _ = store.create_replay(NewReplay(retriable.webhook_id, WINDOW, origin=ELSEWHERE))
    page = await followed(client, await client.post(path(retriable, "/retry")))
    assert page.texts(".//main//*[@role='status']") == [
        "Nothing was queued: another job of this webhook is not over yet."
    ]
    assert [each.id for each in store.replays().items if each.retry_of] == []
    assert store.replay(other.id).state is ReplayState.OPEN


async def test_nobody_reads_or_moves_the_job_of_another(
    others_client: ConsoleClient, store: Store, replay: Replay
) -> None:
    before = store.replay(replay.id)
    answers = [await others_client.get(path(replay, page)) for page in ("", "/cancel")]
    answers += [await others_client.post(path(replay, action)) for action in ACTIONS]
    assert [answer.status_code for answer in answers] == [404] * 6
    assert not any(replay.webhook_id in answer.text for answer in answers)
    assert store.replay(replay.id) == before


async def test_who_may_only_look_changes_nothing(
    readers_client: ConsoleClient, store: Store, replay: Replay
) -> None:
    before = store.replay(replay.id)
    answers = [await readers_client.post(path(replay, action)) for action in ACTIONS]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert store.replay(replay.id) == before


async def test_what_is_refused_to_who_asks_is_told_to_the_audit(
    anonymous: ConsoleClient,
    readers_client: ConsoleClient,
    others_client: ConsoleClient,
    store: Store,
    replay: Replay,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.disable_webhook(replay.webhook_id, "gone")
    caplog.set_level(logging.INFO, "rewind.audit")
    for client, action in ((readers_client, "/pause"), (others_client, "/retry")):
        await client.post(path(replay, action))
    await anonymous.http.post(path(replay, "/cancel"))
    # What asks for nothing to be changed is none of the audit's.
    await readers_client.get(path(replay, "/cancel"))
    lines = [vars(record) for record in caplog.records if record.message == "change"]
    assert [(line["action"], line["target"], line["status"]) for line in lines] == [
        ("pauseReplay", replay.id, 403),
        ("retryReplay", replay.id, 404),
        ("cancelReplay", replay.id, 401),
    ]
    assert [line["key_id"] is None for line in lines] == [False, False, True]


async def test_who_may_only_look_is_offered_nothing_to_press(
    readers_client: ConsoleClient, replay: Replay
) -> None:
    page = await readers_client.page(path(replay))
    assert not page.all(".//main//button")
    assert not page.all(".//main//form")
    assert "cloneOf" not in page.markup
    assert (await readers_client.get(path(replay, "/cancel"))).status_code == 403


async def test_a_form_without_the_token_of_the_sign_in_changes_nothing(
    client: ConsoleClient, store: Store, replay: Replay
) -> None:
    before = store.replay(replay.id)
    for action in ACTIONS:
        for data in ({"once": "1"}, {"once": "1", "csrf": "0" * 64}):
            answer = await client.http.post(path(replay, action), data=data)
            assert answer.status_code == 403, (action, data)
    assert store.replay(replay.id) == before


async def test_nobody_comes_to_a_job_without_signing_in(
    anonymous: ConsoleClient, replay: Replay
) -> None:
    answer = await anonymous.get(path(replay))
    assert answer.headers["location"] == f"/console/sign-in?next=%2Fconsole%2Fjobs%2F{replay.id}"


async def test_changes_and_those_that_came_too_late_are_told_to_the_audit(
    client: ConsoleClient, replay: Replay, operator: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    csrf = await client.csrf()
    caplog.set_level(logging.INFO, "rewind.audit")
    for action in ("/pause", "/pause", "/resume"):
        await client.http.post(path(replay, action), data={"csrf": csrf})
    lines = [vars(record) for record in caplog.records if record.message == "change"]
    assert [(line["action"], line["status"]) for line in lines] == [
        ("pauseReplay", 303),
        ("pauseReplay", 409),
        ("resumeReplay", 303),
    ]
    assert {(line["target"], line["key_id"]) for line in lines} == {(replay.id, operator[0].id)}


async def test_nothing_that_others_wrote_becomes_markup(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    options = ReplayOptions(event_types=(HOSTILE,), target_url=HOSTILE)
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, options), actor=HOSTILE)
    store.update_webhook(webhook.id, description=HOSTILE)
    claim = store.claim(HOSTILE, lease_s=60)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(partition=3, start=1_000, end=5_000))
    given_up = Failure(1_001, HOSTILE, 1, 503, HOSTILE, 10, HOSTILE)
    counts = Counts(failed=1)
    assert store.checkpoint(claim.lease, 2_000, counts, [given_up], {HOSTILE: 1}, with_sample=True)
    assert store.fail(claim.lease, HOSTILE)
    page = await client.page(path(replay))
    # Description, types, target, asker, worker twice, error twice, status, event, reason, response.
    assert page.main.count("<script>alert(1)</script>") >= 12
    assert not page.all(".//main//script")
    assert not page.all(".//main//img")
    assert "onerror=alert(1)>" not in page.markup.replace("&gt;", "")
