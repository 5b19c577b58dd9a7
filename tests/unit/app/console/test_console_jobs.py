"""The list of jobs, without JavaScript."""

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config import Settings
from app.console import job_rows as job_rows_module
from app.console.job_rows import RowStyle, counter_parts, job_rows, row_parts, waiting_reason
from app.console.rendering import environment
from app.console.static_files import static_url
from app.console.urls import filter_query, parse_filter
from app.domain.model import (
    Counts,
    Failure,
    Lease,
    NewReplay,
    OffsetRange,
    Replay,
    ReplayFilter,
    Webhook,
    Window,
)
from app.domain.states import ReplayState
from app.domain.windows import parse_time
from app.services.progress_watch import version_of
from app.store import Store
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage, text_of
from tests.unit.app.console.stored_jobs import plan_of, statements, store_jobs

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
WINDOW = Window(parse_time("2026-11-22T07:00:00Z"), parse_time("2026-11-22T08:00:00Z"))
HOUR_MS = 3_600_000
NAMES: dict[str, str] = {}


@pytest.fixture
def ongoing(store: Store, webhook: Webhook) -> Replay:
    """Return a replay at a quarter of its records, with one failure."""
    store.create_replay(NewReplay(webhook.id, WINDOW))
    claim = store.claim("machine:7", lease_s=60)
    assert claim is not None
    store.begin_delivery(claim.lease, OffsetRange(partition=3, start=100, end=500))
    failure = Failure(120, "evt_1", attempts=6, status=503, reason="status 503")
    store.checkpoint(claim.lease, 200, Counts(delivered=4_040, failed=1), [failure])
    return store.replay(claim.replay.id)


def ids(page: HtmlPage) -> list[str]:
    return [row.get("data-live-id", "") for row in page.all(".//tbody/tr")]


def cell(page: HtmlPage, name: str) -> str:
    return text_of(page.one(f".//tbody//*[@data-live='{name}']"))


def webhook_cell(page: HtmlPage) -> str:
    return text_of(page.one(".//tbody/tr/th"))


def webhook_links(page: HtmlPage) -> dict[str, str]:
    """Return the words of the links to webhooks in rows, by the webhooks' ids."""
    start = "/console/webhooks/"
    links = {link.get("href", ""): text_of(link) for link in page.all(".//tbody//th/a")}
    return {url[len(start) :]: words for url, words in links.items() if url.startswith(start)}


def tabs(page: HtmlPage) -> dict[str, str]:
    """Return the nonzero numbers of the tabs."""
    counts = page.all(".//ul[@data-live-id='counters']//span[@data-live]")
    found = {each.get("data-live", ""): text_of(each) for each in counts}
    return {name: number for name, number in found.items() if number != "0"}


async def test_an_empty_list_explains_how_to_create_a_replay(
    client: ConsoleClient, readers_client: ConsoleClient
) -> None:
    page = await client.page("/console/jobs")
    assert "No jobs yet" in page.main
    assert page.one(".//main//section//a[@href='/console/replays/new']") is not None

    page = await readers_client.page("/console/jobs")
    assert "This key is read-only" in page.main
    assert page.all(".//a[@href='/console/replays/new']") == []


async def test_a_row_shows_the_progress_of_a_job(client: ConsoleClient, ongoing: Replay) -> None:
    page = await client.page("/console/jobs")

    row = page.one(".//tbody/tr")
    assert row.get("data-live-id") == ongoing.id
    assert row.get("data-version") == version_of(ongoing)
    assert page.one(f".//tbody//a[@href='/console/jobs/{ongoing.id}']").text == ongoing.id
    assert webhook_cell(page) == f"{ongoing.id} billing {ongoing.webhook_id} {ongoing.account_id}"
    assert webhook_links(page) == {ongoing.webhook_id: "billing"}
    assert "2026-11-22 07:00:00 2026-11-22 08:00:00" in " ".join(page.texts(".//tbody//td"))
    assert cell(page, "state") == "ONGOING"
    assert cell(page, "progress") == "25 % 4 040 delivered"
    assert float(page.one(".//tbody//progress").get("value", "")) == 0.25
    assert cell(page, "rate").endswith("/s")
    assert cell(page, "failures") == "1"
    assert "ago" in cell(page, "heartbeat")
    assert cell(page, "worker") == "machine:7"


async def test_page_and_stream_render_the_same_cells(
    client: ConsoleClient, ongoing: Replay
) -> None:
    page = await client.page("/console/jobs")
    made = environment(30.0)
    parts = row_parts(made, ongoing, ongoing.created_ms)
    names = {cell.get("data-live") for cell in page.all(".//tbody//*[@data-live]")}
    assert names == set(parts)
    assert parts["state"] in page.markup
    assert parts["worker"] == "machine:7"


def test_a_row_warns_once_the_lease_has_expired(ongoing: Replay) -> None:
    made = environment(30.0)
    assert ongoing.heartbeat_ms is not None

    def heartbeat(after_ms: int) -> str:
        assert ongoing.heartbeat_ms is not None
        return row_parts(made, ongoing, ongoing.heartbeat_ms + after_ms)["heartbeat"]

    words = "late: the lease of 30 s has expired"
    assert words in heartbeat(29_999)
    assert "hidden" in heartbeat(29_999)
    assert words in heartbeat(30_000)
    assert "hidden" not in heartbeat(30_000)
    assert "30 s ago" in heartbeat(30_000)


def test_the_row_of_an_ended_job_is_rendered_once_per_style(store: Store, ongoing: Replay) -> None:
    made = environment(30.0)
    later_ms = ongoing.created_ms + HOUR_MS
    style, other = RowStyle(boxes=True, accounts=True), RowStyle(boxes=False, accounts=True)

    def row(replay: Replay, style: RowStyle, present_ms: int = later_ms) -> str:
        return job_rows(made, [replay], present_ms, style, NAMES)[0]

    assert "1 h ago" in row(ongoing, style)
    assert row(ongoing, style) != row(ongoing, style, later_ms + HOUR_MS)

    ended = store.cancel_replay(ongoing.id)
    assert row(ended, style) is row(ended, style, later_ms + HOUR_MS)
    assert "ago" not in row(ended, style)
    assert "checkbox" in row(ended, style)
    assert "checkbox" not in row(ended, other)

    # A final checkpoint after the cancellation.
    store.checkpoint(Lease(ongoing.id, ongoing.lease_epoch), 300, Counts(delivered=4_041), [])
    assert "4\N{NARROW NO-BREAK SPACE}041 delivered" in row(store.replay(ongoing.id), style)


def test_the_cache_of_rows_is_bounded(
    monkeypatch: pytest.MonkeyPatch, store: Store, ongoing: Replay
) -> None:
    monkeypatch.setattr(job_rows_module, "ENDED_ROWS_MAX", 2)
    made, style = environment(30.0), RowStyle(boxes=True, accounts=True)
    ended = store.cancel_replay(ongoing.id)
    many = [replace(ended, created_ms=ended.created_ms - number) for number in range(5)]
    assert len({*job_rows(made, many, ended.created_ms, style, NAMES)}) == 5
    assert len(job_rows_module._ended_rows) <= 2


@pytest.mark.parametrize("state", [ReplayState.OPEN, ReplayState.COMPLETED])
async def test_a_row_has_the_current_name_of_its_webhook(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook, state: ReplayState
) -> None:
    (job,) = store_jobs(settings.database, webhook, 1, state)

    async def shown() -> dict[str, str]:
        return webhook_links(await client.page("/console/jobs"))

    assert await shown() == {webhook.id: "billing"}
    store.update_webhook(webhook.id, description=HOSTILE)
    assert await shown() == {webhook.id: HOSTILE}
    store.update_webhook(webhook.id, description="")
    assert await shown() == {webhook.id: webhook.url}
    store.update_webhook(webhook.id, description="word " * 50)
    assert len((await shown())[webhook.id]) <= 120

    store.delete_webhook(webhook.id)
    page = await client.page("/console/jobs")
    assert webhook_cell(page) == f"{job} {webhook.id} deleted {webhook.account_id}"
    assert webhook_links(page) == {}


async def test_the_state_shows_what_a_job_waits_for(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    assert cell(await client.page("/console/jobs"), "state") == "OPEN waits for a worker"

    claim = store.claim("machine:7", lease_s=60)
    assert claim is not None
    store.postpone(claim.lease, f"the log is away {HOSTILE}", 60)
    page = await client.page("/console/jobs")
    assert cell(page, "state") == f"OPEN waits: the log is away {HOSTILE}"
    assert page.all(".//main//img") == []

    store.pause_replay(replay.id)
    assert cell(await client.page("/console/jobs"), "state") == "PAUSED"


async def test_the_state_shows_the_error_as_text(
    client: ConsoleClient, store: Store, ongoing: Replay, settings: Settings, webhook: Webhook
) -> None:
    store.cancel_replay(ongoing.id)
    url = settings.database
    store_jobs(url, webhook, 1, ReplayState.FAILED, error=HOSTILE, worker=HOSTILE)
    page = await client.page("/console/jobs", state="FAILED")
    assert cell(page, "state") == f"FAILED {HOSTILE}"
    assert cell(page, "worker") == HOSTILE
    assert page.all(".//main//script") == page.all(".//main//img") == []


async def test_tabs_count_by_state_under_the_other_filters(
    client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
    others_webhook: Webhook,
) -> None:
    store_jobs(settings.database, webhook, 3, ReplayState.OPEN)
    store_jobs(settings.database, webhook, 2, ReplayState.FAILED)
    store_jobs(settings.database, others_webhook, 4, ReplayState.FAILED)

    assert tabs(await client.page("/console/jobs")) == {"all": "9", "OPEN": "3", "FAILED": "6"}
    page = await client.page("/console/jobs", state="FAILED", webhookId=webhook.id)
    assert tabs(page) == {"all": "5", "OPEN": "3", "FAILED": "2"}
    assert len(ids(page)) == 2
    (current,) = page.all(".//ul[@data-live-id='counters']//a[@aria-current]")
    assert text_of(current) == "FAILED 2"


async def test_jobs_that_completed_with_failures_have_a_tab_and_a_label(
    client: ConsoleClient, settings: Settings, webhook: Webhook
) -> None:
    url = settings.database
    complete = store_jobs(url, webhook, 1, ReplayState.COMPLETED)
    partial = store_jobs(url, webhook, 1, ReplayState.COMPLETED, failed=2)
    store_jobs(url, webhook, 1, ReplayState.FAILED, failed=2)
    page = await client.page("/console/jobs", state="COMPLETED", withFailures="true")
    assert ids(page) == partial
    assert cell(page, "state") == "Completed with failures"
    (current,) = page.all(".//ul[@data-live-id='counters']//a[@aria-current]")
    assert text_of(current) == "Completed with failures"
    page = await client.page("/console/jobs", state="COMPLETED")
    assert sorted(ids(page)) == sorted(complete + partial)
    (current,) = page.all(".//ul[@data-live-id='counters']//a[@aria-current]")
    assert text_of(current).startswith("COMPLETED ")
    (link,) = (
        each
        for each in page.all(".//ul[@data-live-id='counters']//a")
        if text_of(each) == "Completed with failures"
    )
    assert link.get("href") == "/console/jobs?state=COMPLETED&withFailures=true"


async def test_filters_narrow_the_list_and_are_part_of_every_link(
    client: ConsoleClient, settings: Settings, webhook: Webhook, others_webhook: Webhook
) -> None:
    url = settings.database
    old = store_jobs(url, webhook, 1, ReplayState.FAILED, created_ms=HOUR_MS, failed=2)
    new = store_jobs(url, webhook, 1, ReplayState.FAILED, created_ms=2 * HOUR_MS)
    other = store_jobs(url, others_webhook, 1, ReplayState.OPEN, created_ms=3 * HOUR_MS)

    async def found(**query: str) -> list[str]:
        return ids(await client.page("/console/jobs", **query))

    assert await found() == other + new + old
    assert await found(accountId=webhook.account_id) == new + old
    assert await found(webhookId=others_webhook.id) == other
    assert await found(createdFrom="1970-01-01T02:00") == other + new
    assert await found(createdTo="1970-01-01T02:00:00Z") == old
    assert await found(withFailures="true") == old
    recovery = store_jobs(url, others_webhook, 1, ReplayState.FAILED, reason="recovery")
    page = await client.page("/console/jobs", reason="recovery")
    assert ids(page) == recovery
    assert "recovery" in text_of(page.one(".//tbody/tr/th"))
    assert await found(reason="request") == other + new + old
    assert await found(state="OPEN", webhookId=webhook.id) == []

    page = await client.page(
        "/console/jobs", webhookId=webhook.id, createdFrom="1970-01-01T00:30", state="FAILED"
    )
    for link in page.all(".//ul[@data-live-id='counters']//a"):
        query = parse_qs(urlsplit(link.get("href", "")).query)
        assert query["webhookId"] == [webhook.id]
        assert query["createdFrom"] == ["1970-01-01T00:30:00.000Z"]
    assert page.field("webhookId") == webhook.id
    assert page.field("createdFrom") == "1970-01-01T00:30:00"
    assert page.one(".//body").get("data-live") == page.field("filter")


async def test_pages_cover_the_whole_list(
    client: ConsoleClient, settings: Settings, webhook: Webhook
) -> None:
    stored = store_jobs(settings.database, webhook, 120, ReplayState.COMPLETED)
    found: list[str] = []
    path = "/console/jobs?state=COMPLETED"
    while True:
        page = await client.page(path)
        found += ids(page)
        links = {
            text_of(link): link.get("href", "") for link in page.all(".//nav[@class='pages']/a")
        }
        assert ("Newest" in links) == (len(found) > 50)
        if "Older" not in links:
            break
        path = links["Older"]
    assert found == stored[::-1]
    assert links["Newest"] == "/console/jobs?state=COMPLETED"


async def test_an_invalid_filter_is_shown_at_its_field(client: ConsoleClient) -> None:
    answer = await client.get("/console/jobs", createdFrom="yesterday", webhookId="w" * 300)
    assert answer.status_code == 400
    page = HtmlPage(answer.text)
    assert "RFC 3339" in page.error_of("createdFrom")
    assert "at most 256 characters" in page.error_of("webhookId")
    assert page.field("createdFrom") == "yesterday"
    # A datetime-local input would be empty.
    assert page.one(".//*[@name='createdFrom']").get("type") == "text"
    assert ids(page) == []

    answer = await client.get("/console/jobs", state="LOST")
    assert answer.status_code == 400
    assert "OPEN, STARTED, ONGOING" in HtmlPage(answer.text).main
    assert (await client.get("/console/jobs", cursor="x")).status_code == 400


async def test_a_developer_sees_the_jobs_of_the_own_account_only(
    developers_client: ConsoleClient,
    settings: Settings,
    webhook: Webhook,
    others_webhook: Webhook,
) -> None:
    own = store_jobs(settings.database, webhook, 1)
    others = store_jobs(settings.database, others_webhook, 1)

    page = await developers_client.page("/console/jobs")
    assert ids(page) == own
    assert tabs(page) == {"all": "1", "OPEN": "1"}
    assert others[0] not in page.markup
    assert others_webhook.account_id not in page.markup
    assert page.all(".//*[@name='accountId']") == []

    page = await developers_client.page("/console/jobs", webhookId=others_webhook.id)
    assert (ids(page), tabs(page)) == ([], {})
    answer = await developers_client.get("/console/jobs", accountId=others_webhook.account_id)
    assert answer.status_code == 403


async def test_a_read_only_key_gets_no_forms(
    readers_client: ConsoleClient, ongoing: Replay
) -> None:
    page = await readers_client.page("/console/jobs")
    assert ids(page) == [ongoing.id]
    assert page.all(".//*[@type='checkbox'][@name='id']") == []
    assert page.all(".//main//form[@method='post']") == []


async def test_without_a_session_the_list_redirects_to_sign_in(anonymous: ConsoleClient) -> None:
    answer = await anonymous.get("/console/jobs", state="OPEN")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/sign-in?next=%2Fconsole%2Fjobs%3Fstate%3DOPEN"


async def test_messages_are_selected_by_code(client: ConsoleClient) -> None:
    page = await client.page("/console/jobs", did="pause", count=3, refused=1)
    assert page.texts(".//main//*[@role='status']") == [
        "3 jobs paused. 1 skipped: its state has changed."
    ]
    page = await client.page("/console/jobs", did=HOSTILE, count=HOSTILE)
    assert page.all(".//main//*[@role='status']") == []


async def test_every_query_of_the_list_uses_an_index(
    client: ConsoleClient,
    developers_client: ConsoleClient,
    settings: Settings,
    webhook: Webhook,
    others_webhook: Webhook,
) -> None:
    url = settings.database
    for number, state in enumerate(ReplayState):
        store_jobs(url, webhook, 60, state, created_ms=number * 1_000_000)
        store_jobs(url, others_webhook, 10, state, created_ms=number * 1_000_000)
    for each in (client, developers_client):
        for query in ({}, {"state": "PAUSED"}, {"createdFrom": "1970-01-01T00:30"}):
            await each.page("/console/jobs")  # caches the session
            with statements() as seen:
                page = await each.page("/console/jobs", **query)
            about_jobs = [(sql, bound) for sql, bound in seen if "FROM replays" in sql]
            of_names = [(sql, bound) for sql, bound in seen if "FROM webhooks" in sql]
            assert len(ids(page)) == 50
            assert len(about_jobs) == 3
            assert len(of_names) == 1
            for sql, bound in about_jobs + of_names:
                steps = plan_of(url, sql, bound)
                assert all("USING" in step and "INDEX" in step for step in steps), (sql, steps)


async def test_the_first_page_has_less_than_100_kb(
    client: ConsoleClient, settings: Settings, webhook: Webhook
) -> None:
    store_jobs(settings.database, webhook, 60, ReplayState.ONGOING, worker="machine-17:4711")
    answers = [
        await client.get(path)
        for path in ("/console/jobs", static_url("console.css"), static_url("console.js"))
    ]
    assert len(ids(HtmlPage(answers[0].text))) == 50
    assert sum(len(answer.content) for answer in answers) < 100_000


def test_there_is_a_counter_for_each_state_and_for_all() -> None:
    parts = counter_parts({ReplayState.OPEN: 1_200, ReplayState.FAILED: 34})
    assert parts["all"] == "1\N{NARROW NO-BREAK SPACE}234"
    assert parts["OPEN"] == "1\N{NARROW NO-BREAK SPACE}200"
    assert parts["PAUSED"] == "0"
    assert set(parts) == {"all", *ReplayState}


def test_a_claimed_job_has_no_waiting_reason(ongoing: Replay) -> None:
    assert waiting_reason(ongoing) is None


TEXTS = st.text(min_size=1, max_size=40).map(str.strip).filter(bool)
TIMES = st.integers(0, 4_102_444_800_000)


@given(
    st.builds(
        ReplayFilter,
        st.frozensets(st.sampled_from(ReplayState)),
        st.none() | TEXTS,
        st.none() | TEXTS,
        st.none() | TIMES,
        st.none() | TIMES,
        st.booleans(),
    )
)
def test_a_filter_survives_the_round_trip_through_its_query(wanted: ReplayFilter) -> None:
    assert parse_filter(filter_query(wanted)) == wanted
    assert parse_filter(filter_query(wanted, cursor="c", did="pause")) == wanted
