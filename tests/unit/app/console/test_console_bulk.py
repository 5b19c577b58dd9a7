"""Many jobs at once: what is asked first, what is done then, and to whose jobs."""

import logging
import time
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.console import bulk_work
from app.console.bulk_orders import TICKED_MAX, Action
from app.domain.filters import ReplayFilter
from app.domain.model import NewReplay, Replay, Webhook, Window
from app.domain.moves import MoveEvent
from app.domain.states import ReplayState
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient, enabled_webhook
from tests.support.http.html_page import HtmlPage, text_of
from tests.unit.app.console.stored_jobs import store_jobs

pytestmark = pytest.mark.anyio

ASK = "/console/jobs/bulk"
DO = "/console/jobs/bulk/do"
FORM = f".//form[@action='{DO}']"

HOSTILE = "<script>alert(1)</script>"


def order(action: str, *ids: str, **fields: Any) -> dict[str, Any]:
    """The form of ticked rows, or with scope=all that of a filter."""
    present_ms = time.time_ns() // 1_000_000
    return {"action": action, "scope": "ticked", "before": present_ms + 1, "id": ids} | fields


def all_of(action: str, query: str = "", **fields: Any) -> dict[str, Any]:
    return order(action, scope="all", filter=query, **fields)


def asked(page: HtmlPage) -> dict[str, Any]:
    """What the button of a page sends that asks."""
    form = page.one(FORM)
    assert form.findall("button"), "nothing is offered"
    fields: dict[str, Any] = {}
    for each in form.findall("input"):
        fields.setdefault(each.get("name", ""), []).append(each.get("value", ""))
    del fields["csrf"]
    return fields


def table(page: HtmlPage) -> dict[str, tuple[str, ...]]:
    """By state, how many jobs it will be done to, and how many it will not."""
    rows = [[text_of(cell) for cell in row] for row in page.all(".//main//tbody/tr")]
    return {row[0]: tuple(row[1:]) for row in rows}


def states(store: Store, *ids: str) -> list[str]:
    return [str(store.replay(each).state) for each in ids]


async def confirmed(client: ConsoleClient, form: dict[str, Any]) -> httpx.Response:
    """Ask, and say yes."""
    return await client.post(DO, asked(await client.posted(ASK, form)))


async def notice(client: ConsoleClient, answer: httpx.Response) -> str:
    """What the page says that a form led to."""
    assert answer.status_code == 303, answer.text
    page = await client.page(answer.headers["location"])
    return " ".join(page.texts(".//main//*[@role='status']"))


async def test_the_number_is_told_before_anything_is_done(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    url = settings.database
    opened = store_jobs(url, webhook, 2)
    paused = store_jobs(url, webhook, 1, ReplayState.PAUSED)
    over = store_jobs(url, webhook, 3, ReplayState.COMPLETED)

    page = await client.posted(ASK, order("pause", *opened, *paused, *over))
    assert page.texts(".//h1") == ["Pause 2 jobs?"]
    assert table(page) == {"OPEN": ("2", "0"), "PAUSED": ("0", "1"), "COMPLETED": ("0", "3")}
    assert states(store, *opened) == ["OPEN", "OPEN"]
    assert asked(page)["id"] == opened

    answer = await client.post(DO, asked(page))
    assert await notice(client, answer) == "2 jobs are paused."
    assert states(store, *opened, *paused, *over) == ["PAUSED"] * 3 + ["COMPLETED"] * 3


@pytest.mark.parametrize(
    ("action", "before", "after", "words"),
    [
        ("pause", ReplayState.ONGOING, "PAUSED", "The job is paused."),
        ("resume", ReplayState.PAUSED, "OPEN", "The job goes on."),
        ("cancel", ReplayState.STARTED, "CANCELLED", "The job is cancelled."),
    ],
)
async def test_each_action_moves_what_is_ticked_and_says_who_did(
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
        answer = await confirmed(developers_client, order(action, job))
    assert await notice(developers_client, answer) == words
    assert states(store, job) == [after]
    assert [move.actor for move in store.moves(job)] == [developer[0].id]
    (line,) = [record for record in caplog.records if record.getMessage() == "change"]
    assert (line.action, line.target) == (f"{action}Replay", "1 replays")  # type: ignore[attr-defined]


async def test_all_that_match_are_those_of_the_filter_and_none_that_came_later(
    client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
    others_webhook: Webhook,
) -> None:
    url = settings.database
    meant = store_jobs(url, webhook, 3, created_ms=1_000)
    too_late = store_jobs(url, webhook, 1, created_ms=5_000)
    others = store_jobs(url, others_webhook, 1, created_ms=1_000)
    over = store_jobs(url, webhook, 2, ReplayState.FAILED, created_ms=1_000)

    form = all_of("cancel", f"webhookId={webhook.id}", before=5_000)
    page = await client.posted(ASK, form)
    assert page.texts(".//h1") == ["Cancel 3 jobs?"]
    assert table(page) == {"OPEN": ("3", "0"), "FAILED": ("0", "2")}
    assert "1970-01-01 00:00:04" in page.main

    answer = await client.post(DO, asked(page))
    assert await notice(client, answer) == "3 jobs are cancelled."
    assert answer.headers["location"].startswith(f"/console/jobs?webhookId={webhook.id}&did=")
    assert states(store, *meant) == ["CANCELLED"] * 3
    assert states(store, *too_late, *others, *over) == ["OPEN", "OPEN", "FAILED", "FAILED"]


async def test_the_state_of_the_filter_counts_too(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    opened = store_jobs(settings.database, webhook, 1)
    ongoing = store_jobs(settings.database, webhook, 1, ReplayState.ONGOING)
    await confirmed(client, all_of("pause", "state=ONGOING"))
    assert states(store, *opened, *ongoing) == ["OPEN", "PAUSED"]

    page = await client.posted(ASK, all_of("pause", "state=PAUSED"))
    assert page.texts(".//h1") == ["None of these jobs can be paused"]
    assert table(page) == {"PAUSED": ("0", "1")}
    assert page.one(FORM).findall("button") == []


async def test_a_job_that_moved_on_meanwhile_is_counted_as_refused(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    jobs = store_jobs(settings.database, webhook, 3)
    page = await client.posted(ASK, order("pause", *jobs))
    store.cancel_replay(jobs[0])
    answer = await client.post(DO, asked(page))
    told = "2 jobs are paused. One had moved on meanwhile, and was left as it is."
    assert await notice(client, answer) == told

    page = await client.posted(ASK, all_of("cancel", "state=PAUSED"))
    store.resume_replay(jobs[1])
    answer = await client.post(DO, asked(page))
    told = "The job is cancelled. One had moved on meanwhile, and was left as it is."
    assert await notice(client, answer) == told


async def test_with_nothing_ticked_nothing_is_asked(client: ConsoleClient) -> None:
    answer = await client.post(ASK, order("pause", filter="state=OPEN"))
    assert "No job was ticked" in await notice(client, answer)
    assert answer.headers["location"].startswith("/console/jobs?state=OPEN&")


async def test_what_one_request_has_no_time_for_is_left_to_the_next(
    client: ConsoleClient,
    store: Store,
    settings: Settings,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = store_jobs(settings.database, webhook, 2 * bulk_work.MOVED_AT_ONCE + 1)
    monkeypatch.setattr(bulk_work, "BEGIN_S", 0.0)

    page = HtmlPage((await confirmed(client, all_of("cancel"))).text)
    assert page.texts(".//h1") == ["100 jobs cancelled, 101 left"]
    page = await client.posted(DO, asked(page))
    assert page.texts(".//h1") == ["200 jobs cancelled, 1 left"]
    answer = await client.post(DO, asked(page))
    assert await notice(client, answer) == "201 jobs are cancelled."
    assert set(states(store, *jobs)) == {"CANCELLED"}


class TestRetry:
    """Of what jobs gave up: each is a new job, queued as the API queues it."""

    @pytest.fixture
    def webhooks(self, store: Store, developer: Issued) -> list[Webhook]:
        return [enabled_webhook(store, developer) for _ in range(3)]

    @pytest.fixture
    def failed(self, settings: Settings, webhooks: list[Webhook]) -> list[str]:
        """One job of each webhook, over, each with two failures; the last one is the latest."""
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

    async def test_only_what_is_over_and_has_failures_is_tried_again(
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

        page = await client.posted(ASK, order("retry", *failed, *clean, *active))
        assert page.texts(".//h1") == ["Retry 3 jobs?"]
        by_state = {
            "PAUSED": ("0", "1"),
            "COMPLETED": ("1", "2"),
            "FAILED": ("1", "0"),
            "CANCELLED": ("1", "0"),
        }
        assert table(page) == by_state
        assert table(await client.posted(ASK, all_of("retry"))) == by_state
        assert self.retries(store) == {}

        answer = await client.post(DO, asked(page))
        assert await notice(client, answer) == "3 retries are queued."
        retries = self.retries(store)
        assert set(retries) == set(failed)
        (move,) = store.moves(retries[failed[0]].id)
        assert (move.event, move.actor) == (MoveEvent.CREATE, operator[0].id)

    async def test_all_that_match_are_tried_again_one_after_another(
        self,
        client: ConsoleClient,
        store: Store,
        failed: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(bulk_work, "BEGIN_S", 0.0)
        page = HtmlPage((await confirmed(client, all_of("retry"))).text)
        assert page.texts(".//h1") == ["1 job queued again, 2 left"]
        assert set(self.retries(store)) == {failed[2]}
        page = await client.posted(DO, asked(page))
        answer = await client.post(DO, asked(page))
        assert await notice(client, answer) == "3 retries are queued."
        assert set(self.retries(store)) == set(failed)

    async def test_those_refused_are_listed_each_with_its_reason(
        self, client: ConsoleClient, store: Store, webhooks: list[Webhook], failed: list[str]
    ) -> None:
        active, _ = store.create_replay(NewReplay(webhooks[0].id, Window(1, 2)))
        store.disable_webhook(webhooks[1].id, HOSTILE)

        page = HtmlPage((await confirmed(client, order("retry", *failed))).text)
        assert page.texts(".//h1") == ["1 job queued again, 2 refused"]
        rows = page.texts(".//main//tbody/tr")
        assert rows[0].startswith(failed[0])
        assert f"has the active replay '{active.id}'" in rows[0]
        assert rows[1].startswith(failed[1])
        assert f"is DISABLED: {HOSTILE}" in rows[1]
        assert page.one(FORM).findall("button") == []
        assert set(self.retries(store)) == {None, failed[2]}

    async def test_a_form_that_is_sent_twice_queues_nothing_twice(
        self, client: ConsoleClient, store: Store, failed: list[str]
    ) -> None:
        form = asked(await client.posted(ASK, order("retry", *failed)))
        for _ in range(2):
            answer = await client.post(DO, form)
            assert await notice(client, answer) == "3 retries are queued."
        assert len(self.retries(store)) == 3

    async def test_a_log_that_is_down_stops_it_and_loses_nothing(
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
        page = HtmlPage((await confirmed(client, order("retry", job))).text)
        assert page.texts(".//h1") == ["0 jobs queued again, 1 left"]
        assert "It stopped early: the log does not answer" in page.main
        assert asked(page)["id"] == [job]
        assert self.retries(store) == {}


class TestWho:
    """Nobody touches what is another account's, and who may only look touches nothing."""

    async def test_ids_of_others_are_not_there(
        self,
        developers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        others_webhook: Webhook,
    ) -> None:
        (own,) = store_jobs(settings.database, webhook, 1)
        (other,) = store_jobs(settings.database, others_webhook, 1)

        page = await developers_client.posted(ASK, order("cancel", own, other))
        assert page.texts(".//h1") == ["Cancel 1 job?"]
        assert "1 job that was ticked is not there" in page.main
        assert table(page) == {"OPEN": ("1", "0")}
        assert asked(page)["id"] == [own]

        forged = asked(page) | {"id": [own, other]}
        answer = await developers_client.post(DO, forged)
        assert "One had moved on" in await notice(developers_client, answer)
        assert states(store, own, other) == ["CANCELLED", "OPEN"]

    async def test_all_that_match_are_all_of_ones_own(
        self,
        developers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        others_webhook: Webhook,
    ) -> None:
        own = store_jobs(settings.database, webhook, 2)
        others = store_jobs(settings.database, others_webhook, 2)
        answer = await confirmed(developers_client, all_of("pause"))
        assert await notice(developers_client, answer) == "2 jobs are paused."
        assert states(store, *own, *others) == ["PAUSED", "PAUSED", "OPEN", "OPEN"]

        page = await developers_client.posted(
            ASK, all_of("pause", f"webhookId={others_webhook.id}")
        )
        assert table(page) == {}
        for path in (ASK, DO):
            form = all_of("pause", f"accountId={others_webhook.account_id}")
            assert (await developers_client.post(path, form)).status_code == 403
        assert states(store, *others) == ["OPEN", "OPEN"]

    async def test_a_retry_of_anothers_job_is_not_found(
        self,
        developers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        others_webhook: Webhook,
    ) -> None:
        (own,) = store_jobs(settings.database, webhook, 1, ReplayState.FAILED, failed=1)
        (other,) = store_jobs(settings.database, others_webhook, 1, ReplayState.FAILED, failed=1)
        form = asked(await developers_client.posted(ASK, order("retry", own)))
        page = await developers_client.posted(DO, form | {"id": [other]})
        assert page.texts(".//h1") == ["0 jobs queued again, 1 refused"]
        assert f"replay '{other}' does not exist" in page.main
        assert store.count_by_state(ReplayFilter())[ReplayState.OPEN] == 0

    @pytest.mark.parametrize("path", [ASK, DO])
    async def test_who_may_only_look_is_refused(
        self,
        readers_client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        path: str,
    ) -> None:
        (job,) = store_jobs(settings.database, webhook, 1)
        assert (await readers_client.post(path, order("cancel", job))).status_code == 403
        assert states(store, job) == ["OPEN"]

    @pytest.mark.parametrize("path", [ASK, DO])
    @pytest.mark.parametrize("token", [None, "", "0" * 64])
    async def test_a_form_without_the_token_of_the_sign_in_is_refused(
        self,
        client: ConsoleClient,
        store: Store,
        settings: Settings,
        webhook: Webhook,
        path: str,
        token: str | None,
    ) -> None:
        (job,) = store_jobs(settings.database, webhook, 1)
        form = order("cancel", job) | ({} if token is None else {"csrf": token})
        assert (await client.http.post(path, data=form)).status_code == 403
        assert states(store, job) == ["OPEN"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"action": "delete"}, "pause, resume, cancel, retry"),
        ({"scope": "some"}, "all, ticked"),
        ({"before": "-1"}, "before is"),
        ({"before": "9" * 40}, "before is"),
        ({"expected": "many"}, "expected is"),
        ({"once": "short"}, "16 to 64 characters"),
        ({"cursor": "c" * 501}, "at most 500 characters"),
        ({"filter": "state=LOST"}, "OPEN, STARTED"),
        ({"id": ["r" * 65]}, "at most 64 characters"),
        ({"id": [f"rpl_{number}" for number in range(TICKED_MAX + 1)]}, "at most 500 jobs"),
    ],
)
async def test_a_form_that_no_page_of_ours_holds_is_refused(
    client: ConsoleClient, wrong: dict[str, Any], said: str
) -> None:
    for path in (ASK, DO):
        page = await client.posted(path, order("pause", "rpl_1") | wrong, 400)
        assert said in page.main


async def test_as_many_as_may_be_ticked_fit_into_a_form(
    client: ConsoleClient, store: Store, settings: Settings, webhook: Webhook
) -> None:
    jobs = store_jobs(settings.database, webhook, TICKED_MAX)
    answer = await confirmed(client, order("pause", *jobs))
    assert await notice(client, answer) == "500 jobs are paused."


def test_an_action_is_possible_in_the_states_that_know_it() -> None:
    assert Action.RESUME.states == {ReplayState.PAUSED}
    over = {ReplayState.COMPLETED, ReplayState.FAILED, ReplayState.CANCELLED}
    assert Action.RETRY.states == over
    assert Action.CANCEL.states == set(ReplayState) - over
