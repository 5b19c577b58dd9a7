"""The page of a job and its forms, without JavaScript."""

import logging

import httpx
import pytest

from app.config import Settings
from app.console.formats import NOTHING
from app.console.job_parts import JobView, job_parts
from app.console.rendering import environment
from app.domain.deliveries import DeliveryPlace, format_delivery_id
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
    """Return a replay that waits for a worker in another data centre."""
    new = NewReplay(webhook.id, WINDOW, origin=ELSEWHERE)
    return store.create_replay(new, actor=developer[0].id)[0]


@pytest.fixture
def claim(store: Store, replay: Replay) -> Claim:
    """Return a claim of the replay, during delivery."""
    return delivered_by(store, ELSEWHERE, OffsetRange(partition=3, start=1_000, end=5_000))


def delivered_by(store: Store, origin: str, offsets: OffsetRange) -> Claim:
    """Claim a replay of a data centre, and begin its delivery."""
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
        last_attempt_ms=1_795_338_000_000,
    )


def fail_events(store: Store, claim: Claim, *failures: Failure) -> None:
    """Store a checkpoint at a quarter, with ten deliveries and these failures."""
    counts = Counts(delivered=10, failed=len(failures))
    statuses = {"200": 10, "503": len(failures)}
    assert store.checkpoint(claim.lease, 2_000, counts, failures, statuses, with_sample=True)


@pytest.fixture
def retriable(store: Store, claim: Claim) -> Replay:
    """Return the replay, completed with a failure."""
    fail_events(store, claim, failure(1))
    assert store.complete(claim.lease)
    return store.replay(claim.replay.id)


def path(replay: Replay, action: str = "") -> str:
    return f"/console/jobs/{replay.id}{action}"


def facts(page: HtmlPage) -> dict[str, str]:
    """Return all description lists of a page as one."""
    return dict(zip(page.texts(".//main//dt"), page.texts(".//main//dd"), strict=True))


async def followed(client: ConsoleClient, answer: httpx.Response) -> HtmlPage:
    """Return the page that a form redirects to."""
    assert answer.status_code == 303, answer.text
    return HtmlPage((await client.http.get(answer.headers["location"])).text)


async def test_the_page_shows_all_parameters(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, developer: Issued
) -> None:
    new = NewReplay(webhook.id, WINDOW, OPTIONS, origin=ELSEWHERE)
    replay, _ = store.create_replay(new, actor=developer[0].id)
    page = await developers_client.page(path(replay))
    assert text_of(page.one(".//h1")) == f"Job {replay.id} OPEN"
    shown = facts(page)
    assert shown["Webhook"] == f"billing {webhook.id}"
    assert page.one(".//main//dl//a").get("href") == f"/console/webhooks/{webhook.id}"
    assert shown["Window"].startswith("2026-11-22 07:00:00 to 2026-11-22 08:00:00")
    assert shown["Event types"] == "follow.*, dm.sent"
    assert shown["Selection"] == "only events not yet delivered"
    assert shown["Max rate"] == "250/s"
    assert shown["Max in flight"] == "3"
    assert shown["Events per request"] == "up to 20"
    assert shown["Target URL"] == "https://elsewhere.example/hooks"
    assert shown["Source"] == "log"
    assert shown["End notification"] == "rewind"
    assert shown["Created"].endswith(f"by {developer[0].id}")
    assert shown["Account"] == webhook.account_id
    assert shown["Data centre"] == ELSEWHERE


async def test_diagnostics_are_shown_to_operators_only(
    client: ConsoleClient, developers_client: ConsoleClient, replay: Replay, claim: Claim
) -> None:
    for each, is_shown in ((client, True), (developers_client, False)):
        page = await each.page(path(replay))
        shown = facts(page)
        assert shown["Worker"] == "machine:7"
        assert ("Partition" in shown) is is_shown
        assert ("Lease epoch" in shown) is is_shown
        assert ("Diagnostics" in page.main) is is_shown
        assert bool(page.all(".//main[@class='operator']")) is is_shown


async def test_the_page_of_a_running_job_shows_worker_and_responses(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    fail_events(store, claim, failure(1))
    page = await client.page(path(replay))
    assert text_of(page.one(".//h1")).endswith("ONGOING")
    assert facts(page)["Worker"] == "machine:7"
    assert "Claimed by worker machine:7" in page.main
    assert page.texts(".//*[@data-live='statuses']//tbody/tr/th") == [
        "200 OK",
        "503 Service Unavailable",
    ]


async def test_the_page_has_an_element_for_each_live_part(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    page = await client.page(path(replay))
    templates = environment(15.0)
    view = JobView(store.replay(replay.id), store.moves(replay.id), store.samples(replay.id))
    item = page.one(f".//*[@data-live-id='job:{replay.id}']")
    shown = {part.get("data-live") for part in item.iter() if part.get("data-live")}
    assert shown == set(job_parts(templates, view, 0))


async def test_failures_show_attempts_status_and_response(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    no_response = Failure(1_500, "evt_9", 6, None, "connection refused")
    fail_events(store, claim, failure(1), no_response)
    page = await client.page(path(replay))
    table = page.one(".//*[@aria-label='Failed events']/table")
    first, second = ([text_of(cell) for cell in row] for row in table.findall("tbody/tr"))
    assert first[:5] == ["evt_1", "1 001", "6", "503", "status 503"]
    assert first[5:] == ["2026-11-22 09:00:00", "1 250 ms", "Show try later"]
    assert second[:5] == ["evt_9", "1 500", "6", "no response", "connection refused"]
    assert second[5:] == [NOTHING, NOTHING, NOTHING]
    assert [text_of(each) for each in table.findall(".//details/pre")] == ["try later"]


async def test_only_operators_see_the_offsets_of_failures(
    client: ConsoleClient,
    developers_client: ConsoleClient,
    store: Store,
    replay: Replay,
    claim: Claim,
) -> None:
    fail_events(store, claim, failure(1))
    table = ".//*[@aria-label='Failed events']/table"
    for viewer, shown in ((client, ["Offset"]), (developers_client, [])):
        page = await viewer.page(path(replay))
        names = page.texts(f"{table}/thead/tr/th")
        assert names[: len(shown) + 2] == ["Event", *shown, "Attempts"]
        (row,) = page.all(f"{table}/tbody/tr")
        assert len(row) == len(names)
        assert ("1 001" in page.main) is bool(shown)


async def test_only_operators_get_links_to_the_messages_of_a_job(
    client: ConsoleClient,
    developers_client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, origin=settings.origin))
    offsets = OffsetRange(partition=3, start=1_000, end=5_000)
    fail_events(store, delivered_by(store, settings.origin, offsets), failure(1))
    messages = "/console/log/topics/delivery_log/messages?from=offset"
    links = [
        href
        for link in (await client.page(path(replay))).all(".//main//a")
        if (href := link.get("href", "")).startswith(messages)
    ]
    partition_url = f"{messages}&partition={offsets.partition}"
    assert links == [
        f"{partition_url}&offset={offsets.start}",
        f"{partition_url}&offset=1001",
    ]
    developers_links = (await developers_client.page(path(replay))).all(".//a")
    assert not [link for link in developers_links if "/console/log" in link.get("href", "")]
    delivery = format_delivery_id(DeliveryPlace(settings.origin, offsets.partition, 1_001))
    (link,) = [each for each in developers_links if each.text == "evt_1"]
    assert link.get("href") == f"/console/deliveries/{delivery}"


async def test_a_job_of_another_data_centre_has_no_links_to_the_log(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    fail_events(store, claim, failure(1))
    page = await client.page(path(replay))
    links = [link.get("href", "") for link in page.all(".//main//a")]
    assert not [link for link in links if "/log/" in link or "/deliveries/" in link]


async def test_failures_are_paged(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    fail_events(store, claim, *(failure(number) for number in range(51)))
    first = await client.page(path(replay))
    assert len(first.all(".//*[@aria-label='Failed events']//tbody/tr")) == 50
    (link,) = first.all(".//nav[@aria-label='Pages of failures']/a")
    second = await client.page(path(replay) + link.get("href", ""))
    assert second.texts(".//*[@aria-label='Failed events']//tbody/tr/th") == ["evt_50"]
    (back,) = second.all(".//nav[@aria-label='Pages of failures']/a")
    assert back.get("href") == f"{path(replay)}#failures"


async def test_an_invalid_cursor_is_rejected(client: ConsoleClient, replay: Replay) -> None:
    answer = await client.get(path(replay), cursor="nonsense")
    assert answer.status_code == 400
    assert "cursor is &#39;nonsense&#39;" in answer.text


async def test_the_complete_history_is_one_click_away(
    client: ConsoleClient, store: Store, replay: Replay
) -> None:
    for _ in range(20):
        store.pause_replay(replay.id)
        store.resume_replay(replay.id)
    page = await client.page(path(replay))
    items = page.texts(".//ol/li")
    assert "10 more. Show all" in items
    everything = await client.page(path(replay), moves="all")
    assert len(everything.all(".//ol/li")) == 41
    assert not everything.all(".//*[@data-live='timeline']")


async def test_a_deleted_webhook_is_marked(
    client: ConsoleClient, store: Store, replay: Replay, webhook: Webhook
) -> None:
    store.delete_webhook(webhook.id)
    page = await client.page(path(replay))
    assert facts(page)["Webhook"] == f"{webhook.id} deleted"
    assert not page.all(f".//main//a[@href='/console/webhooks/{webhook.id}']")
    assert "its webhook was deleted" in page.main


async def test_pause_and_resume(
    developers_client: ConsoleClient, store: Store, replay: Replay, developer: Issued
) -> None:
    client = developers_client
    paused = await followed(client, await client.post(path(replay, "/pause")))
    assert store.replay(replay.id).state is ReplayState.PAUSED
    assert paused.texts(".//main//*[@class='notice']") == ["Job paused."]
    assert [each.get("form") for each in paused.all(".//main//button[@form]")] == ["do-resume"]
    resumed = await followed(client, await client.post(path(replay, "/resume")))
    assert store.replay(replay.id).state is ReplayState.OPEN
    assert resumed.texts(".//main//*[@class='notice']") == ["Job resumed."]
    assert [move.actor for move in store.moves(replay.id)] == [developer[0].id] * 3


async def test_each_button_belongs_to_a_form_on_the_page(
    client: ConsoleClient, replay: Replay
) -> None:
    page = await client.page(path(replay))
    (button,) = page.all(".//main//button[@form]")
    form = page.one(f".//main//form[@id='{button.get('form')}']")
    assert (form.get("method"), form.get("action")) == ("post", path(replay, "/pause"))
    fields = page.fields(f".//main//form[@id='{button.get('form')}']")
    answer = await client.http.post(form.get("action", ""), data=fields)
    assert answer.headers["location"] == f"{path(replay)}?did=pause"


async def test_cancelling_asks_for_confirmation_with_the_events_left(
    client: ConsoleClient, store: Store, replay: Replay, claim: Claim
) -> None:
    fail_events(store, claim, failure(1), failure(2))
    confirmation = await client.page(path(replay, "/cancel"))
    assert "10 events delivered, 2 failed" in confirmation.main
    # Twelve events in a quarter of the records.
    assert "About 36 events in 3 000 unread records will not be sent." in confirmation.main
    assert store.replay(replay.id).state is ReplayState.ONGOING
    form = confirmation.one(".//main//form")
    fields = confirmation.fields(".//main//form")
    answer = await client.http.post(form.get("action", ""), data=fields)
    page = await followed(client, answer)
    assert page.texts(".//main//*[@class='notice']") == ["Job cancelled."]
    assert store.replay(replay.id).state is ReplayState.CANCELLED


async def test_cancelling_before_the_delivery_has_started(
    client: ConsoleClient, replay: Replay
) -> None:
    confirmation = await client.page(path(replay, "/cancel"))
    assert "0 events delivered" in confirmation.main
    assert "Delivery has not started: no event will be sent." in confirmation.main


async def test_a_job_whose_state_does_not_allow_an_action_is_unchanged(
    client: ConsoleClient, store: Store, replay: Replay
) -> None:
    store.cancel_replay(replay.id)
    before = store.replay(replay.id)
    # What it did not reach can be retried.
    for action in ACTIONS[:3]:
        answer = await client.post(path(replay, action))
        assert answer.headers["location"] == f"{path(replay)}?did=state-changed", action
    # The confirmation page redirects as well.
    page = await followed(client, await client.get(path(replay, "/cancel")))
    (message,) = page.all(".//main//*[@role='status']")
    assert text_of(message) == "The state of the job has changed; nothing was done."
    assert message.get("class") == "notice bad-news"
    assert store.replay(replay.id) == before


async def test_a_retry_is_a_new_job_with_a_link_to_the_first(
    client: ConsoleClient, store: Store, retriable: Replay
) -> None:
    page = await client.page(path(retriable))
    assert "Retry 1 failed event" in page.main
    fields = page.fields(".//form[@id='do-retry']")
    answer = await client.http.post(path(retriable, "/retry"), data=fields)
    retry = await followed(client, answer)
    assert retry.texts(".//main//*[@class='notice']") == [
        "Retry queued: it sends what was not delivered."
    ]
    shown = facts(retry)
    assert shown["Retry of"].startswith(retriable.id)
    # Submitting the same form again leads to the same job.
    again = await client.http.post(path(retriable, "/retry"), data=fields)
    assert again.headers["location"] == answer.headers["location"]


async def test_no_retry_is_queued_while_the_webhook_has_an_active_job(
    client: ConsoleClient, store: Store, retriable: Replay
) -> None:
    other, _ = store.create_replay(NewReplay(retriable.webhook_id, WINDOW, origin=ELSEWHERE))
    page = await followed(client, await client.post(path(retriable, "/retry")))
    assert page.texts(".//main//*[@role='status']") == [
        "Retry not queued: this webhook has another active job."
    ]
    assert [each.id for each in store.replays().items if each.retry_of] == []
    assert store.replay(other.id).state is ReplayState.OPEN


async def test_jobs_of_other_accounts_are_not_found(
    others_client: ConsoleClient, store: Store, replay: Replay
) -> None:
    before = store.replay(replay.id)
    answers = [await others_client.get(path(replay, page)) for page in ("", "/cancel")]
    answers += [await others_client.post(path(replay, action)) for action in ACTIONS]
    assert [answer.status_code for answer in answers] == [404] * 6
    assert not any(replay.webhook_id in answer.text for answer in answers)
    assert store.replay(replay.id) == before


async def test_a_read_only_key_changes_nothing(
    readers_client: ConsoleClient, store: Store, replay: Replay
) -> None:
    before = store.replay(replay.id)
    answers = [await readers_client.post(path(replay, action)) for action in ACTIONS]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert store.replay(replay.id) == before


async def test_rejected_changes_are_audited(
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
    # Requests that change nothing are not audited.
    await readers_client.get(path(replay, "/cancel"))
    lines = [vars(record) for record in caplog.records if record.message == "change"]
    assert [(line["action"], line["target"], line["status"]) for line in lines] == [
        ("pauseReplay", replay.id, 403),
        ("retryReplay", replay.id, 404),
        ("cancelReplay", replay.id, 401),
    ]
    assert [line["key_id"] is None for line in lines] == [False, False, True]


async def test_a_read_only_key_gets_no_buttons(
    readers_client: ConsoleClient, replay: Replay
) -> None:
    page = await readers_client.page(path(replay))
    assert not page.all(".//main//button")
    assert not page.all(".//main//form")
    assert "cloneOf" not in page.markup
    assert (await readers_client.get(path(replay, "/cancel"))).status_code == 403


async def test_a_form_without_a_valid_csrf_token_changes_nothing(
    client: ConsoleClient, store: Store, replay: Replay
) -> None:
    before = store.replay(replay.id)
    for action in ACTIONS:
        for data in ({"once": "1"}, {"once": "1", "csrf": "0" * 64}):
            answer = await client.http.post(path(replay, action), data=data)
            assert answer.status_code == 403, (action, data)
    assert store.replay(replay.id) == before


async def test_without_a_session_a_job_redirects_to_sign_in(
    anonymous: ConsoleClient, replay: Replay
) -> None:
    answer = await anonymous.get(path(replay))
    assert answer.headers["location"] == f"/console/sign-in?next=%2Fconsole%2Fjobs%2F{replay.id}"


async def test_changes_and_conflicts_are_audited(
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


async def test_external_text_is_escaped(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    options = ReplayOptions(event_types=(HOSTILE,), target_url=HOSTILE)
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, options), actor=HOSTILE)
    store.update_webhook(webhook.id, description=HOSTILE)
    claim = store.claim(HOSTILE, lease_s=60)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(partition=3, start=1_000, end=5_000))
    failed = Failure(1_001, HOSTILE, 1, 503, HOSTILE, 10, HOSTILE)
    counts = Counts(failed=1)
    assert store.checkpoint(claim.lease, 2_000, counts, [failed], {HOSTILE: 1}, with_sample=True)
    assert store.fail(claim.lease, HOSTILE)
    page = await client.page(path(replay))
    # Description, types, target, creator, worker and error twice, status, event, reason, response.
    assert page.main.count("<script>alert(1)</script>") >= 12
    assert not page.all(".//main//script")
    assert not page.all(".//main//img")
    assert "onerror=alert(1)>" not in page.markup.replace("&gt;", "")
