"""Creating a replay, without JavaScript."""

import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from app.config import Settings
from app.console.formats import format_field_time, input_type, parse_field_time
from app.console.new_replay import WEBHOOKS_MAX
from app.console.replay_forms import DEFAULTS, LAST, last_window
from app.domain.model import NewReplay, NewWebhook, Replay, Webhook, Window
from app.domain.options import Only, ReplayOptions
from app.domain.windows import DAY_MS, MINUTE_MS, TimeUnreadable, format_time, parse_time
from app.log.topics import DELIVERY_LOG
from app.store import Store
from app.webhooks.signing import new_secret
from logbroker.client.partitioner import partition_for_key
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient, enabled_webhook
from tests.support.http.html_page import HtmlPage, text_of
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S
from tests.support.service.live_service import PARTITIONS, LiveScene, events

pytestmark = pytest.mark.anyio

PAGE = "/console/replays/new"
START = "/console/replays"
FORM = f".//form[@action='{START}']"

HOSTILE = "<script>alert(1)</script>\"'&"
NOW_MS = time.time_ns() // 1_000_000
WINDOW = Window(NOW_MS - 60 * MINUTE_MS, NOW_MS - 30 * MINUTE_MS)


def typed(webhook: Webhook, **fields: str) -> dict[str, str]:
    """Return the form for a window of a webhook."""
    window = {"from": format_field_time(WINDOW.from_ms), "to": format_field_time(WINDOW.to_ms)}
    return {**DEFAULTS, "webhookId": webhook.id, **window, **fields}


def started(page: HtmlPage) -> dict[str, str]:
    """Return the fields that the button of the preview sends."""
    assert text_of(page.one(f"{FORM}/button")) == "Start replay"
    fields = page.fields(FORM)
    del fields["csrf"]
    return fields


def facts(page: HtmlPage) -> dict[str, str]:
    return dict(zip(page.texts(".//main//dt"), page.texts(".//main//dd"), strict=True))


def jobs(store: Store) -> tuple[Replay, ...]:
    return store.replays().items


async def test_a_link_prefills_the_form(client: ConsoleClient, webhook: Webhook) -> None:
    page = await client.page(
        PAGE,
        webhookId=webhook.id,
        **{"from": "2026-11-22T08:00:00+01:00", "to": "202611220800"},
        only="failed",
        eventTypes="follow.* dm.sent",
        targetUrl=HOSTILE,
        maxEventsPerSecond="250",
        source="archive",
    )
    assert page.field("webhookId") == webhook.id
    assert (page.field("from"), page.field("to")) == ("2026-11-22T07:00:00", "2026-11-22T08:00:00")
    assert page.field("eventTypes") == "follow.* dm.sent"
    assert page.field("targetUrl") == HOSTILE
    assert page.field("maxEventsPerSecond") == "250"
    checked = [each.get("value") for each in page.all(".//input[@type='radio'][@checked]")]
    assert checked == ["failed", "archive"]
    # Options other than the defaults are visible.
    assert "open" in page.one(".//main//details").attrib


def link(webhook: Webhook, window: Window) -> dict[str, str]:
    """Return the query of a link to the form."""
    return {
        "webhookId": webhook.id,
        "from": format_time(window.from_ms),
        "to": format_time(window.to_ms),
        "only": "failed",
    }


async def test_a_link_that_begins_before_the_history_has_the_rest_of_its_window(
    client: ConsoleClient, webhook: Webhook, settings: Settings
) -> None:
    start_ms = NOW_MS - settings.history_ms
    window = Window(start_ms - 10 * MINUTE_MS, start_ms + 50 * MINUTE_MS)
    page = await client.page(PAGE, **link(webhook, window))
    from_ms = parse_field_time(page.field("from"))
    assert start_ms < from_ms < start_ms + 30 * MINUTE_MS
    assert page.field("to") == format_field_time(window.to_ms)
    assert "The window begins with the first events that are still available." in page.main


async def test_a_link_whose_window_is_over_is_not_changed(
    client: ConsoleClient, webhook: Webhook, settings: Settings
) -> None:
    end_ms = NOW_MS - settings.history_ms
    window = Window(end_ms - 60 * MINUTE_MS, end_ms)
    page = await client.page(PAGE, **link(webhook, window))
    assert page.field("from") == format_field_time(window.from_ms)
    assert "still available" not in page.main


async def test_default_options_are_collapsed(client: ConsoleClient) -> None:
    page = await client.page(PAGE)
    assert "open" not in page.one(".//main//details").attrib
    assert page.field("maxEventsPerSecond") == "2500"
    assert page.one(".//*[@name='from']").get("type") == "datetime-local"


async def test_a_clone_has_all_options(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    options = ReplayOptions(
        event_types=("follow.*", "dm.sent"),
        only=Only.FAILED,
        max_events_per_second=7,
        max_in_flight=3,
        batch_size=20,
        target_url="https://elsewhere.example/hooks",
    )
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, options))
    page = await client.page(PAGE, cloneOf=replay.id, batchSize="1")
    fields = page.fields(f".//form[@action='{PAGE}']")
    del fields["csrf"]
    assert fields == {
        "webhookId": webhook.id,
        "last": "",
        "from": format_time(WINDOW.from_ms).removesuffix("Z"),
        "to": format_time(WINDOW.to_ms).removesuffix("Z"),
        "source": "log",
        "only": "failed",
        "eventTypes": "follow.*\ndm.sent",
        "maxEventsPerSecond": "7",
        "maxInFlight": "3",
        "batchSize": "1",
        "targetUrl": "https://elsewhere.example/hooks",
    }


async def test_a_job_of_another_account_cannot_be_cloned(
    others_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    answer = await others_client.get(PAGE, cloneOf=replay.id)
    assert answer.status_code == 404
    assert webhook.id not in answer.text


async def test_a_developer_chooses_among_the_own_webhooks(
    developers_client: ConsoleClient, webhook: Webhook, others_webhook: Webhook
) -> None:
    page = await developers_client.page(PAGE)
    offered = {
        each.get("value"): text_of(each) for each in page.all(".//select[@name='webhookId']/option")
    }
    assert offered == {"": "Select a webhook", webhook.id: f"billing · {webhook.id}"}
    assert others_webhook.id not in page.markup

    # Another id needs an input; submitting it fails.
    page = await developers_client.page(PAGE, webhookId=others_webhook.id)
    assert page.one(".//*[@name='webhookId']").tag == "input"


async def test_with_too_many_webhooks_the_form_has_an_input_for_the_id(
    client: ConsoleClient, store: Store, operator: Issued
) -> None:
    for _ in range(WEBHOOKS_MAX):
        new = NewWebhook("https://example.com/", "", new_secret(), operator[0].account.id)
        store.create_webhook(new)
    assert (await client.page(PAGE)).one(".//*[@name='webhookId']").tag == "select"
    enabled_webhook(store, operator)
    assert (await client.page(PAGE)).one(".//*[@name='webhookId']").tag == "input"


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("webhookId", "", "required"),
        ("from", "", "required"),
        ("from", "yesterday", "RFC 3339"),
        ("from", format_time(NOW_MS - 5 * DAY_MS - MINUTE_MS), "at least"),
        ("to", format_time(WINDOW.from_ms), "a time after from"),
        ("to", format_time(NOW_MS + DAY_MS), "at most the present"),
        ("maxEventsPerSecond", "many", "valid integer"),
        ("maxEventsPerSecond", "0", "greater than or equal to 1"),
        ("maxInFlight", "9" * 30, "valid integer"),
        ("batchSize", "1001", "less than or equal to 1000"),
        ("eventTypes", "follow.\N{SNOWMAN}", "text that matches"),
        ("eventTypes", "a " * 51, "50 of them at most"),
        ("targetUrl", "ftp://example.com/", "targetUrl"),
        ("source", "elsewhere", "log"),
        ("only", "some", "all"),
        ("last", "7", "15, 60, 360"),
    ],
    # Generated ids with times would differ between xdist workers.
    ids=itertools.count(1),
)
async def test_an_invalid_value_is_shown_at_its_field_and_all_values_are_kept(
    client: ConsoleClient, store: Store, webhook: Webhook, field: str, text: str, message: str
) -> None:
    given = typed(webhook, eventTypes="follow.*") | {field: text}
    for path, more in ((PAGE, {}), (START, {"once": "o" * 22})):
        if (path, field) == (START, "last"):
            continue  # the window is fixed by then
        page = await client.posted(path, given | more, 400)
        if field in ("source", "only", "last"):
            assert message in page.main
        else:
            assert message in page.error_of(field)
            assert page.field(field) == text.strip()
        if field != "eventTypes":
            assert page.field("eventTypes") == "follow.*"
    assert jobs(store) == ()


async def test_a_webhook_of_another_account_is_not_found(
    developers_client: ConsoleClient, store: Store, others_webhook: Webhook
) -> None:
    for path, more in ((PAGE, {}), (START, {"once": "o" * 22})):
        page = await developers_client.posted(path, typed(others_webhook) | more, 404)
        assert f"webhook '{others_webhook.id}' does not exist" in page.error_of("webhookId")
    assert jobs(store) == ()


async def test_without_the_log_the_form_keeps_its_values(
    client: ConsoleClient, webhook: Webhook
) -> None:
    page = await client.posted(PAGE, typed(webhook, batchSize="9"), 503)
    assert "the log does not answer; try again" in page.main
    assert page.field("batchSize") == "9"


async def test_an_archive_replay_has_no_dry_run(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    old = Window(NOW_MS - 40 * DAY_MS, NOW_MS - 39 * DAY_MS)
    given = typed(webhook, source="archive") | {
        "from": format_time(old.from_ms),
        "to": format_time(old.to_ms),
    }
    page = await client.posted(PAGE, given)
    assert "No dry run is available for the archive." in page.main
    assert "rewind-jobs restore" in page.main
    assert started(page)["source"] == "archive"
    assert jobs(store) == ()

    page = await client.posted(PAGE, given | {"only": "failed"}, 400)
    assert "all, when the source is archive" in page.main


async def test_a_read_only_key_cannot_create_replays(
    readers_client: ConsoleClient, webhook: Webhook
) -> None:
    assert (await readers_client.get(PAGE)).status_code == 403
    for path in (PAGE, START):
        answer = await readers_client.post(path, typed(webhook) | {"once": "o" * 22})
        assert answer.status_code == 403


@pytest.mark.parametrize("token", [None, "", "0" * 64])
async def test_a_form_without_a_valid_csrf_token_is_rejected(
    client: ConsoleClient, store: Store, webhook: Webhook, token: str | None
) -> None:
    for path in (PAGE, START):
        form = typed(webhook) | {"once": "o" * 22} | ({} if token is None else {"csrf": token})
        assert (await client.http.post(path, data=form)).status_code == 403
    assert jobs(store) == ()


@pytest.mark.parametrize("once", ["", "o" * 65])
async def test_a_start_needs_an_idempotency_key(
    client: ConsoleClient, webhook: Webhook, once: str
) -> None:
    page = await client.posted(START, typed(webhook) | {"once": once}, 400)
    assert "once: 1 to 64 characters" in page.main


class TestWithALog:
    """With a broker, which a dry run needs."""

    @pytest.fixture
    def settings(self, tmp_path: Path, broker: BrokerProcess) -> Settings:
        return Settings(data_dir=tmp_path / "console", bootstrap_servers=broker.bootstrap_servers)

    @pytest.fixture
    def log_timeout_s(self) -> float:
        return 20.0

    @pytest.fixture
    def missed(self, tmp_path: Path, settings: Settings, webhook: Webhook) -> Iterator[LiveScene]:
        """Return a scene with three missed events in the window."""
        scene = LiveScene(tmp_path, settings.bootstrap_servers, settings.database)
        with scene:
            scene.make_topics()
            scene.owe(webhook, *events(0, 3), time_ms=WINDOW.from_ms + MINUTE_MS)
            yield scene

    async def test_a_preview_precedes_the_start_and_a_double_click_starts_one_replay(
        self,
        developers_client: ConsoleClient,
        developer: Issued,
        store: Store,
        webhook: Webhook,
        missed: LiveScene,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        page = await developers_client.posted(PAGE, typed(webhook, maxEventsPerSecond="100"))
        shown = facts(page)
        assert shown["Events"] == "3"
        assert "Exact count." in page.main
        assert shown["Bytes"].endswith(" B")
        assert "Offsets" not in shown
        assert shown["Duration"].startswith("about ")
        assert jobs(store) == ()

        form = started(page)
        with caplog.at_level(logging.INFO, "rewind.audit"):
            answers = [await developers_client.post(START, form) for _ in range(2)]
        (replay,) = jobs(store)
        for answer in answers:
            assert answer.status_code == 303
            assert answer.headers["location"] == f"/console/jobs/{replay.id}?did=start"
        assert replay.window == WINDOW
        assert replay.options.max_events_per_second == 100
        assert store.moves(replay.id)[0].actor == developer[0].id
        lines = [line for line in caplog.records if line.getMessage() == "change"]
        assert {(line.action, line.target) for line in lines} == {  # type: ignore[attr-defined]
            ("createReplay", replay.id)
        }

    async def test_a_webhook_with_an_active_job_gets_no_second_one(
        self, client: ConsoleClient, store: Store, webhook: Webhook, missed: LiveScene
    ) -> None:
        page = await client.posted(PAGE, typed(webhook))
        form = started(page)
        active, _ = store.create_replay(NewReplay(webhook.id, WINDOW))

        page = await client.posted(START, form, 409)
        assert "has the active replay" in page.main
        assert page.one(f".//main//a[@href='/console/jobs/{active.id}']") is not None
        page = await client.posted(PAGE, typed(webhook))
        assert "which must end before another can start" in page.main
        assert len(jobs(store)) == 1

    async def test_a_preview_warns_of_an_empty_window_and_a_disabled_webhook(
        self, client: ConsoleClient, store: Store, webhook: Webhook, missed: LiveScene
    ) -> None:
        store.disable_webhook(webhook.id, HOSTILE)
        page = await client.posted(PAGE, typed(webhook, eventTypes="nothing.*"))
        shown = facts(page)
        assert shown["Events"] == "0"
        # For operators.
        assert shown["Offsets"].startswith("0 to 3, exclusive")
        assert "No matching events in this window." in page.main
        # The window ends at the time of the preview.
        window = facts(await client.posted(PAGE, typed(webhook) | {"last": "360"}))["Window"]
        assert window.endswith(" 6 h")
        assert f"The webhook is DISABLED: {HOSTILE}" in page.main
        page = await client.posted(START, started(page), 409)
        assert "is DISABLED" in page.main

    async def test_a_link_that_begins_before_the_log_has_the_rest_of_its_window(
        self, client: ConsoleClient, settings: Settings, webhook: Webhook, missed: LiveScene
    ) -> None:
        place = TopicPartition(DELIVERY_LOG, partition_for_key(webhook.id.encode(), PARTITIONS), 1)
        admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        admin.delete_records([place])[place].result(DEADLINE_S)
        page = await client.page(PAGE, **link(webhook, WINDOW))
        assert page.field("from") == format_field_time(WINDOW.from_ms + MINUTE_MS)
        fields = page.fields(f".//form[@action='{PAGE}']")
        del fields["csrf"]
        assert facts(await client.posted(PAGE, fields))["Events"] == "2"

    async def test_a_replay_of_the_archive_waits_for_its_restore(
        self, client: ConsoleClient, store: Store, webhook: Webhook, missed: LiveScene
    ) -> None:
        form = started(await client.posted(PAGE, typed(webhook, source="archive")))
        assert (await client.post(START, form)).status_code == 303
        (replay,) = jobs(store)
        assert replay.awaits is not None


def test_times_without_a_zone_are_utc() -> None:
    eight = parse_time("2026-11-22T08:00:00Z")
    for text in ("2026-11-22T08:00", "2026-11-22 08:00:00", "2026-11-22T08:00:00.000"):
        assert parse_field_time(text) == eight
    assert parse_field_time("2026-11-22T09:00:00+01:00") == eight
    assert parse_field_time("2026-11-22T08:00:00.25") == eight + 250
    for text in ("2026-11-22", "2026-11-22T08", "2026-13-22T08:00", ""):
        with pytest.raises(TimeUnreadable):
            parse_field_time(text)


def test_a_field_omits_zero_milliseconds() -> None:
    eight = parse_time("2026-11-22T08:00:00Z")
    assert format_field_time(eight) == "2026-11-22T08:00:00"
    assert format_field_time(eight + 7) == "2026-11-22T08:00:00.007"
    assert format_field_time(None) == ""


def test_a_value_that_datetime_local_cannot_show_is_text() -> None:
    for text in ("", "2026-11-22T08:00", "2026-11-22T08:00:00.007"):
        assert input_type(text) == "datetime-local"
    for text in ("yesterday", "2026-11-22T08:00:00Z", "2026-13-22T08:00", "202611220800"):
        assert input_type(text) == "text"


def test_a_last_window_ends_now() -> None:
    now_ms = parse_time("2026-11-22T08:00:30.500Z")
    assert last_window("60", now_ms) == {"from": "2026-11-22T07:00:30", "to": "2026-11-22T08:00:30"}
    assert all(int(minutes) * MINUTE_MS < 5 * DAY_MS for minutes in LAST)
