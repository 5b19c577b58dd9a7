"""Commands that call the API: replays, webhooks, notice endpoints. With a broker."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.cli.progress_bar import describe
from app.config import Settings
from app.domain.accounts import Scope
from app.domain.model import Counts, Failure, NewWebhook, OffsetRange, Webhook
from app.domain.windows import MINUTE_MS, format_time
from app.log.topics import ensure_topics
from app.webhooks.signing import new_secret
from tests.support.database.api_keys import issue_key
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.service.api_process import ApiProcess

NOW_MS = time.time_ns() // 1_000_000
WINDOW = ("--from", format_time(NOW_MS - 60 * MINUTE_MS), "--to", format_time(NOW_MS - MINUTE_MS))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("api")
    with BrokerProcess(folder / "log") as broker:
        servers = broker.serve().bootstrap_servers
        ensure_topics(servers, partitions=4, retention_ms=6 * 86_400_000)
        settings = Settings(data_dir=folder, bootstrap_servers=servers, allow_private_targets=True)
        with ApiProcess(settings, folder) as api:
            yield api


@pytest.fixture
def webhook(api: ApiProcess) -> Webhook:
    webhook = api.store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    return api.store.enable_webhook(webhook.id, webhook.url)


class Terminal:
    """Runs commands with an API key in the environment."""

    def __init__(self, api: ApiProcess) -> None:
        _, token = issue_key(api.store, "platform", Scope.OPERATOR, "")
        self._environment = {"REWIND_API_URL": api.url, "REWIND_API_KEY": token}

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, words, env=self._environment)

    def rewind(self, *words: str) -> Any:
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def terminal(api: ApiProcess) -> Terminal:
    return Terminal(api)


def test_every_option_is_a_parameter_of_the_replay(terminal: Terminal, webhook: Webhook) -> None:
    job = terminal.rewind(
        "replay",
        webhook.id,
        *WINDOW,
        *("--event-type", "follow.*", "--event-type", "dm.sent"),
        *("--only", "failed", "--max-events-per-second", "100", "--max-in-flight", "1"),
        *("--batch-size", "20", "--target-url", webhook.url, "--no-wait"),
    )
    assert job["options"] == {
        "eventTypes": ["follow.*", "dm.sent"],
        "only": "failed",
        "maxEventsPerSecond": 100,
        "maxInFlight": 1,
        "batchSize": 20,
        "targetUrl": webhook.url,
    }
    terminal.rewind("replays", "cancel", job["id"])


def test_an_archive_replay_shows_what_it_waits_for(terminal: Terminal, webhook: Webhook) -> None:
    old = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
    job = terminal.rewind("replay", webhook.id, *old, "--source", "archive", "--no-wait")
    shown = terminal.rewind("replays", "list", "--webhook-id", webhook.id)
    assert shown["waitsFor"] == job["waitsFor"]
    assert (shown["source"], shown["waitsFor"]["job"]) == ("archive", "rewind-jobs restore")
    assert "waiting: a restore: " in describe(shown)
    terminal.rewind("replays", "cancel", job["id"])


def test_a_dry_run_creates_no_replay(terminal: Terminal, webhook: Webhook) -> None:
    estimate = terminal.rewind("replay", webhook.id, *WINDOW, "--dry-run")
    assert (estimate["events"], estimate["isExact"]) == (0, True)
    assert terminal.run("replays", "list", "--webhook-id", webhook.id).stdout == ""


@pytest.mark.parametrize(
    "words", [("--only", "some"), ("--batch-size", "0"), ("--max-events-per-second", "fast")]
)
def test_an_option_out_of_range_is_a_usage_error(
    terminal: Terminal, words: tuple[str, ...]
) -> None:
    assert terminal.run("replay", "wh_1", *WINDOW, *words).exit_code == 2


def test_a_replay_is_paused_resumed_cancelled_and_shown(
    terminal: Terminal, webhook: Webhook
) -> None:
    job = terminal.rewind("replay", webhook.id, *WINDOW, "--no-wait")
    for verb, state in (("pause", "PAUSED"), ("resume", "OPEN"), ("cancel", "CANCELLED")):
        assert terminal.rewind("replays", verb, job["id"])["state"] == state
        assert terminal.rewind("replays", "show", job["id"])["state"] == state
    again = terminal.run("replays", "pause", job["id"])
    assert (again.exit_code, again.stdout) == (1, "")
    assert "CANCELLED" in again.stderr


def test_failures_are_listed_and_retried(
    api: ApiProcess, terminal: Terminal, webhook: Webhook
) -> None:
    job = terminal.rewind("replay", webhook.id, *WINDOW, "--no-wait")
    claim = api.store.claim("test", 60.0, "local")
    assert claim is not None
    assert claim.replay.id == job["id"]
    api.store.begin_delivery(claim.lease, OffsetRange(0, 0, 250))
    # More than a page of them.
    given_up = [Failure(offset, f"evt_{offset}", 6, 503, "HTTP") for offset in range(250)]
    api.store.checkpoint(claim.lease, 250, Counts(failed=250), given_up)
    api.store.complete(claim.lease)
    lines = terminal.run("replays", "failures", job["id"]).stdout.splitlines()
    assert [json.loads(line)["eventId"] for line in lines] == [each.event_id for each in given_up]
    child = terminal.rewind("replays", "retry", job["id"])
    assert (child["retryOf"], child["state"]) == (job["id"], "OPEN")
    terminal.rewind("replays", "cancel", child["id"])


def test_replays_are_listed_latest_first(terminal: Terminal, webhook: Webhook) -> None:
    ids: list[str] = []
    for _ in range(3):
        job = terminal.rewind("replay", webhook.id, *WINDOW, "--no-wait")
        terminal.rewind("replays", "cancel", job["id"])
        ids.insert(0, job["id"])

    def listed(*words: str) -> list[str]:
        lines = terminal.run("replays", "list", "--webhook-id", webhook.id, *words).stdout
        return [json.loads(line)["id"] for line in lines.splitlines()]

    # Two of them may be of the same millisecond.
    assert sorted(listed()) == sorted(ids)
    assert listed("--limit", "1") == listed()[:1]
    assert listed("--state", "CANCELLED") == listed()
    assert listed("--state", "OPEN") == []
    assert listed("--reason", "request") == listed()
    assert listed("--reason", "recovery") == []


def test_automatic_recovery_of_a_webhook_is_turned_off_and_on(
    terminal: Terminal, webhook: Webhook
) -> None:
    update = ("webhooks", "update", webhook.id)
    assert not terminal.rewind(*update, "--no-auto-recovery")["autoRecovery"]
    changed = terminal.rewind(*update, "--description", "billing", "--event-type", "follow.*")
    assert (changed["autoRecovery"], changed["eventTypes"]) == (False, ["follow.*"])
    assert terminal.rewind(*update, "--auto-recovery")["autoRecovery"]
    assert terminal.rewind(*update, "--ordering", "strict")["ordering"] == "strict"
    assert terminal.rewind(*update, "--ordering", "none")["ordering"] == "none"
    assert terminal.rewind(*update, "--retry-schedule", "5,3600")["retrySchedule"] == [5, 3_600]
    assert terminal.run(*update, "--retry-schedule", "5,soon").exit_code == 2
    shown = terminal.rewind("webhooks", "show", webhook.id)
    assert (shown["autoRecovery"], shown["description"]) == (True, "billing")
    listed = terminal.run("webhooks", "list", "--status", "ENABLED").stdout.splitlines()
    assert shown in map(json.loads, listed)
    unchanged = terminal.run(*update)
    assert (unchanged.exit_code, unchanged.stdout) == (2, "")


def test_a_notice_endpoint_is_created_changed_rotated_tested_and_deleted(
    terminal: Terminal, receiver: ReceiverThread
) -> None:
    group = "notice-endpoints"
    created = terminal.rewind(group, "create", receiver.url, "--event-type", "webhook.disabled")
    endpoint_id = created["id"]
    assert (created["status"], created["eventTypes"]) == ("ENABLED", ["webhook.disabled"])
    update = (group, "update", endpoint_id)
    changed = terminal.rewind(*update, "--all-event-types", "--description", "on-call")
    assert (changed["eventTypes"], changed["description"]) == (None, "on-call")
    assert terminal.run(*update).exit_code == 2
    rotated = terminal.rewind(group, "rotate-secret", endpoint_id, "--grace-period", "0")
    receiver.expect(rotated["secret"])
    assert terminal.rewind(group, "test", endpoint_id)["delivered"]
    refused = terminal.run(group, "confirm", endpoint_id, "AAAA-AAAA-AAAA")
    assert (refused.exit_code, "no valid code" in refused.stderr) == (1, True)
    # As a `mailto:` URL, which needs a mail server.
    refused = terminal.run(group, "create", "ops@example.com")
    assert (refused.exit_code, "REWIND_SMTP_URL" in refused.stderr) == (1, True)
    disabled = terminal.rewind(group, "disable", endpoint_id, "--reason", "quiet")
    assert (disabled["status"], disabled["statusReason"]) == ("DISABLED", "quiet")
    enabled = terminal.rewind(group, "enable", endpoint_id)
    assert terminal.rewind(group, "show", endpoint_id) == enabled
    assert terminal.rewind(group, "list") == enabled
    assert terminal.run(group, "delete", endpoint_id).exit_code == 0
    assert terminal.run(group, "list").stdout == ""


def test_special_characters_of_an_id_are_escaped(terminal: Terminal) -> None:
    result = terminal.run("replays", "show", "../webhooks")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "404" in result.stderr
