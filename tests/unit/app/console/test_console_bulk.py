"""Bulk actions: confirmation, execution, and access."""

import logging
import time
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.console import bulk
from app.console.bulk_requests import SELECTED_MAX, BulkAction
from app.domain.model import NewReplay, Replay, ReplayFilter, Webhook, Window
from app.domain.moves import MoveEvent
from app.domain.states import ReplayState
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient, enabled_webhook
from tests.support.http.html_page import HtmlPage, text_of
from tests.unit.app.console.stored_jobs import store_jobs

pytestmark = pytest.mark.anyio

CONFIRM = "/console/jobs/bulk"
EXECUTE = "/console/jobs/bulk/do"
FORM = f".//form[@action='{EXECUTE}']"

HOSTILE = "<script>alert(1)</script>"


def selected(action: str, *ids: str, **fields: Any) -> dict[str, Any]:
    """Return the form of selected rows, or with scope=all that of a filter."""
    present_ms = time.time_ns() // 1_000_000
    return {"action": action, "scope": "selected", "before": present_ms + 1, "id": ids} | fields


def all_matching(action: str, query: str = "", **fields: Any) -> dict[str, Any]:
    return selected(action, scope="all", filter=query, **fields)


def confirmation(page: HtmlPage) -> dict[str, Any]:
    """Return the fields that the button of a confirmation page sends."""
    form = page.one(FORM)
    assert form.findall("button"), "no button"
    fields: dict[str, Any] = {}
    for each in form.findall("input"):
        fields.setdefault(each.get("name", ""), []).append(each.get("value", ""))
    del fields["csrf"]
    return fields


def table(page: HtmlPage) -> dict[str, tuple[str, ...]]:
    """Return the numbers of eligible and of other jobs by state."""
    rows = [[text_of(cell) for cell in row] for row in page.all(".//main//tbody/tr")]
    return {row[0]: tuple(row[1:]) for row in rows}


def states(store: Store, *ids: str) -> list[str]:
    return [str(store.replay(each).state) for each in ids]


async def confirmed(client: ConsoleClient, form: dict[str, Any]) -> httpx.Response:
    """Submit a form and its confirmation."""
    return await client.post(EXECUTE, confirmation(await client.posted(CONFIRM, form)))


async def message(client: ConsoleClient, answer: httpx.Response) -> str:
    """Return the message on the page that a form redirects to."""
    assert answer.status_code == 303, answer.text
    page = await client.page(answer.headers["location"])
    return " ".join(page.texts(".//main//*[@role='status']"))


async def test_a_confirmation_shows_the_numbers_and_changes_nothing(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    url = settings.database
    opened = store_jobs(url, webhook, 2)
    paused = store_jobs(url, webhook, 1, ReplayState.PAUSED)
    ended = store_jobs(url, webhook, 3, ReplayState.COMPLETED)

    page = await client.posted(CONFIRM, selected("pause", *opened, *paused, *ended))
    assert page.texts(".//h1") == ["Pause 2 jobs?"]
    assert table(page) == {"OPEN": ("2", "0"), "PAUSED": ("0", "1"), "COMPLETED": ("0", "3")}
    assert states(store, *opened) == ["OPEN", "OPEN"]
    assert confirmation(page)["id"] == opened

    answer = await client.post(EXECUTE, confirmation(page))
    assert await message(client, answer) == "2 jobs paused."
    assert states(store, *opened, *paused, *ended) == ["PAUSED"] * 3 + ["COMPLETED"] * 3


@pytest.mark.parametrize(
    ("action", "before", "after", "words"),
    [
        ("pause", ReplayState.ONGOING, "PAUSED", "Job paused."),
        ("resume", ReplayState.PAUSED, "OPEN", "Job resumed."),
        ("cancel", ReplayState.STARTED, "CANCELLED", "Job cancelled."),
    ],
)
async def test_each_action_changes_the_selected_jobs_and_is_audited(
    developers_client: ConsoleClient,
    developer: Issued,
    store: Store,
    settings: Settings,
    webhook: Webhook,
    caplog: pytest.LogCaptureFixture,
    action: str,
    before: ReplayState,
    after: str,
    words: str,
) -> None:
    (job,) = store_jobs(settings.database, webhook, 1, before)
    with caplog.at_level(logging.INFO, "rewind.audit"):
        answer = await confirmed(developers_client, selected(action, job))
    assert await message(developers_client, answer) == words
    assert states(store, job) == [after]
    assert [move.actor for move in store.moves(job)] == [developer[0].id]
    (line,) = [record for record in caplog.records if record.getMessage() == "change"]
    assert (line.action, line.target) == (f"{action}Replay", "1 replays")  # type: ignore[attr-defined]


async def test_all_matching_excludes_jobs_created_after_the_list_was_loaded(
    client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
    others_webhook: Webhook,
) -> None:
    url = settings.database
    matching = store_jobs(url, webhook, 3, created_ms=1_000)
    too_late = store_jobs(url, webhook, 1, created_ms=5_000)
    others = store_jobs(url, others_webhook, 1, created_ms=1_000)
    ended = store_jobs(url, webhook, 2, ReplayState.FAILED, created_ms=1_000)

    form = all_matching("cancel", f"webhookId={webhook.id}", before=5_000)
    page = await client.posted(CONFIRM, form)
    assert page.texts(".//h1") == ["Cancel 3 jobs?"]
    assert table(page) == {"OPEN": ("3", "0"), "FAILED": ("0", "2")}
    assert "1970-01-01 00:00:04" in page.main

    answer = await client.post(EXECUTE, confirmation(page))
    assert await message(client, answer) == "3 jobs cancelled."
    assert answer.headers["location"].startswith(f"/console/jobs?webhookId={webhook.id}&did=")
    assert states(store, *matching) == ["CANCELLED"] * 3
    assert states(store, *too_late, *others, *ended) == ["OPEN", "OPEN", "FAILED", "FAILED"]


async def test_all_matching_includes_the_state_of_the_filter(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    opened = store_jobs(settings.database, webhook, 1)
    ongoing = store_jobs(settings.database, webhook, 1, ReplayState.ONGOING)
    await confirmed(client, all_matching("pause", "state=ONGOING"))
    assert states(store, *opened, *ongoing) == ["OPEN", "PAUSED"]

    page = await client.posted(CONFIRM, all_matching("pause", "state=PAUSED"))
    assert page.texts(".//h1") == ["None of these jobs can be paused"]
    assert table(page) == {"PAUSED": ("0", "1")}
    assert page.one(FORM).findall("button") == []


async def test_a_job_whose_state_changed_since_is_counted_as_skipped(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    jobs = store_jobs(settings.database, webhook, 3)
    page = await client.posted(CONFIRM, selected("pause", *jobs))
    store.cancel_replay(jobs[0])
    answer = await client.post(EXECUTE, confirmation(page))
    expected = "2 jobs paused. 1 skipped: its state has changed."
    assert await message(client, answer) == expected

    page = await client.posted(CONFIRM, all_matching("cancel", "state=PAUSED"))
    store.resume_replay(jobs[1])
    answer = await client.post(EXECUTE, confirmation(page))
    expected = "Job cancelled. 1 skipped: its state has changed."
    assert await message(client, answer) == expected


async def test_an_empty_selection_has_no_confirmation(client: ConsoleClient) -> None:
    answer = await client.post(CONFIRM, selected("pause", filter="state=OPEN"))
    assert "No jobs selected" in await message(client, answer)
    assert answer.headers["location"].startswith("/console/jobs?state=OPEN&")


async def test_jobs_beyond_the_time_limit_are_left_to_the_next_request(
    client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = store_jobs(settings.database, webhook, 2 * bulk.IDS_PER_BATCH + 1)
    monkeypatch.setattr(bulk, "REQUEST_S", 0.0)

    page = HtmlPage((await confirmed(client, all_matching("cancel"))).text)
    assert page.texts(".//h1") == ["100 jobs cancelled, 101 left"]
    page = await client.posted(EXECUTE, confirmation(page))
    assert page.texts(".//h1") == ["200 jobs cancelled, 1 left"]
    answer = await client.post(EXECUTE, confirmation(page))
    assert await message(client, answer) == "201 jobs cancelled."
    assert set(states(store, *jobs)) == {"CANCELLED"}


class TestRetry:
    """Retries of failed events: each is a new job."""

    @pytest.fixture
    def webhooks(self, store: Store, developer: Issued) -> list[Webhook]:
        return [enabled_webhook(store, developer) for _ in range(3)]

    @pytest.fixture
    def failed(self, settings: Settings, webhooks: list[Webhook]) -> list[str]:
        """Return an ended job of each webhook with two failures; the last one is the latest."""
        return [
            *store_jobs(
                settings.database, webhooks[0], 1, ReplayState.FAILED, created_ms=1_000, failed=2
            ),
            *store_jobs(
                settings.database, webhooks[1], 1, ReplayState.COMPLETED, created_ms=2_000, failed=2
            ),
            *store_jobs(
                settings.database, webhooks[2], 1, ReplayState.CANCELLED, created_ms=3_000, failed=2
            ),
        ]

    def retries(self, store: Store) -> dict[str | None, Replay]:
        page = store.replays(ReplayFilter(frozenset({ReplayState.OPEN})))
        return {replay.retry_of: replay for replay in page.items}

    async def test_only_ended_jobs_with_failures_are_retried(
        self,
        client: ConsoleClient,
        operator: Issued,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        failed: list[str],
    ) -> None:
        clean = store_jobs(settings.database, webhook, 2, ReplayState.COMPLETED)
        active = store_jobs(settings.database, webhook, 1, ReplayState.PAUSED, failed=1)

        page = await client.posted(CONFIRM, selected("retry", *failed, *clean, *active))
        assert page.texts(".//h1") == ["Retry 3 jobs?"]
        by_state = {
            "PAUSED": ("0", "1"),
            "COMPLETED": ("1", "2"),
            "FAILED": ("1", "0"),
            "CANCELLED": ("1", "0"),
        }
        assert table(page) == by_state
        assert table(await client.posted(CONFIRM, all_matching("retry"))) == by_state
        assert self.retries(store) == {}

        answer = await client.post(EXECUTE, confirmation(page))
        assert await message(client, answer) == "3 retries queued."
        retries = self.retries(store)
        assert set(retries) == set(failed)
        (move,) = store.moves(retries[failed[0]].id)
        assert (move.event, move.actor) == (MoveEvent.CREATE, "operator")

    async def test_all_matching_jobs_are_retried_one_by_one(
        self,
        client: ConsoleClient,
        store: Store,
        failed: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(bulk, "REQUEST_S", 0.0)
        page = HtmlPage((await confirmed(client, all_matching("retry"))).text)
        assert page.texts(".//h1") == ["1 job retried, 2 left"]
        assert set(self.retries(store)) == {failed[2]}
        page = await client.posted(EXECUTE, confirmation(page))
        answer = await client.post(EXECUTE, confirmation(page))
        assert await message(client, answer) == "3 retries queued."
        assert set(self.retries(store)) == set(failed)

    async def test_rejected_retries_are_listed_with_their_reasons(
        self, client: ConsoleClient, store: Store, webhooks: list[Webhook], failed: list[str]
    ) -> None:
        active, _ = store.create_replay(NewReplay(webhooks[0].id, Window(1, 2)))
        store.disable_webhook(webhooks[1].id, HOSTILE)

        page = HtmlPage((await confirmed(client, selected("retry", *failed))).text)
        assert page.texts(".//h1") == ["1 job retried, 2 rejected"]
        rows = page.texts(".//main//tbody/tr")
        assert rows[0].startswith(failed[0])
        assert f"has the active replay '{active.id}'" in rows[0]
        assert rows[1].startswith(failed[1])
        assert f"is DISABLED: {HOSTILE}" in rows[1]
        assert page.one(FORM).findall("button") == []
        assert set(self.retries(store)) == {None, failed[2]}

    async def test_a_form_submitted_twice_queues_each_retry_once(
        self, client: ConsoleClient, store: Store, failed: list[str]
    ) -> None:
        form = confirmation(await client.posted(CONFIRM, selected("retry", *failed)))
        for _ in range(2):
            answer = await client.post(EXECUTE, form)
            assert await message(client, answer) == "3 retries queued."
        assert len(self.retries(store)) == 3

    async def test_an_unreachable_log_stops_the_request_without_losing_jobs(
        self, client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
    ) -> None:
        (job,) = store_jobs(
            settings.database,
            webhook,
            1,
            ReplayState.FAILED,
            failed=1,
            origin=settings.origin,
            from_ms=time.time_ns() // 1_000_000 - 60_000,
        )
        page = HtmlPage((await confirmed(client, selected("retry", job))).text)
        assert page.texts(".//h1") == ["0 jobs retried, 1 left"]
        assert "Stopped early: the log does not answer" in page.main
        assert confirmation(page)["id"] == [job]
        assert self.retries(store) == {}


class TestAccess:
    """Only jobs of the own account, and not with a read-only key."""

    async def test_jobs_of_other_accounts_are_not_found(
        self,
        developers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        others_webhook: Webhook,
    ) -> None:
        (own,) = store_jobs(settings.database, webhook, 1)
        (other,) = store_jobs(settings.database, others_webhook, 1)

        page = await developers_client.posted(CONFIRM, selected("cancel", own, other))
        assert page.texts(".//h1") == ["Cancel 1 job?"]
        assert "1 job not found" in page.main
        assert table(page) == {"OPEN": ("1", "0")}
        assert confirmation(page)["id"] == [own]

        forged = confirmation(page) | {"id": [own, other]}
        answer = await developers_client.post(EXECUTE, forged)
        assert "1 skipped" in await message(developers_client, answer)
        assert states(store, own, other) == ["CANCELLED", "OPEN"]

    async def test_all_matching_is_limited_to_the_own_account(
        self,
        developers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        others_webhook: Webhook,
    ) -> None:
        own = store_jobs(settings.database, webhook, 2)
        others = store_jobs(settings.database, others_webhook, 2)
        answer = await confirmed(developers_client, all_matching("pause"))
        assert await message(developers_client, answer) == "2 jobs paused."
        assert states(store, *own, *others) == ["PAUSED", "PAUSED", "OPEN", "OPEN"]

        page = await developers_client.posted(
            CONFIRM, all_matching("pause", f"webhookId={others_webhook.id}")
        )
        assert table(page) == {}
        for path in (CONFIRM, EXECUTE):
            form = all_matching("pause", f"accountId={others_webhook.account_id}")
            assert (await developers_client.post(path, form)).status_code == 403
        assert states(store, *others) == ["OPEN", "OPEN"]

    async def test_a_retry_of_another_accounts_job_is_not_found(
        self,
        developers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        others_webhook: Webhook,
    ) -> None:
        (own,) = store_jobs(settings.database, webhook, 1, ReplayState.FAILED, failed=1)
        (other,) = store_jobs(settings.database, others_webhook, 1, ReplayState.FAILED, failed=1)
        form = confirmation(await developers_client.posted(CONFIRM, selected("retry", own)))
        page = await developers_client.posted(EXECUTE, form | {"id": [other]})
        assert page.texts(".//h1") == ["0 jobs retried, 1 rejected"]
        assert f"replay '{other}' does not exist" in page.main
        assert store.count_by_state(ReplayFilter())[ReplayState.OPEN] == 0

    @pytest.mark.parametrize("path", [CONFIRM, EXECUTE])
    async def test_a_read_only_key_is_rejected(
        self,
        readers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        path: str,
    ) -> None:
        (job,) = store_jobs(settings.database, webhook, 1)
        assert (await readers_client.post(path, selected("cancel", job))).status_code == 403
        assert states(store, job) == ["OPEN"]

    @pytest.mark.parametrize("path", [CONFIRM, EXECUTE])
    @pytest.mark.parametrize("token", [None, "", "0" * 64])
    async def test_a_form_without_a_valid_csrf_token_is_rejected(
        self,
        client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        path: str,
        token: str | None,
    ) -> None:
        (job,) = store_jobs(settings.database, webhook, 1)
        form = selected("cancel", job) | ({} if token is None else {"csrf": token})
        assert (await client.http.post(path, data=form)).status_code == 403
        assert states(store, job) == ["OPEN"]


@pytest.mark.parametrize(
    ("invalid", "message_part"),
    [
        ({"action": "delete"}, "pause, resume, cancel, retry"),
        ({"scope": "some"}, "all, selected"),
        ({"before": "-1"}, "before is"),
        ({"before": "9" * 40}, "before is"),
        ({"expected": "many"}, "expected is"),
        ({"once": "short"}, "16 to 64 characters"),
        ({"cursor": "c" * 501}, "at most 500 characters"),
        ({"filter": "state=LOST"}, "OPEN, STARTED"),
        ({"id": ["r" * 65]}, "at most 64 characters"),
        ({"id": [f"rpl_{number}" for number in range(SELECTED_MAX + 1)]}, "at most 500 jobs"),
    ],
)
async def test_an_invalid_form_is_rejected(
    client: ConsoleClient, invalid: dict[str, Any], message_part: str
) -> None:
    for path in (CONFIRM, EXECUTE):
        page = await client.posted(path, selected("pause", "rpl_1") | invalid, 400)
        assert message_part in page.main


async def test_a_form_has_room_for_the_maximum_of_selected_jobs(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    jobs = store_jobs(settings.database, webhook, SELECTED_MAX)
    answer = await confirmed(client, selected("pause", *jobs))
    assert await message(client, answer) == "500 jobs paused."


def test_each_action_knows_the_states_that_allow_it() -> None:
    assert BulkAction.RESUME.states == {ReplayState.PAUSED}
    ended = {ReplayState.COMPLETED, ReplayState.FAILED, ReplayState.CANCELLED}
    assert BulkAction.RETRY.states == ended
    assert BulkAction.CANCEL.states == set(ReplayState) - ended
