"""The demo: a receiver has an outage, a replay delivers the missed events, ids are compared."""

import asyncio
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import click
from httpx import HTTPError

from app.cli.api_client import ApiClient, ApiError
from app.cli.demo_platform import QUEUED_MAX, AccountPlatform, Developer, LiveProgress, free_port
from app.cli.options import exit_with_error, load_settings
from app.cli.progress_bar import follow
from app.cli.service import LocalService
from app.domain.windows import format_time
from app.store import StoreError
from logbroker.embedded import ChildDidNotStart

WEBHOOKS: Final = 40
LINES_KEPT: Final = 50
"""The last lines of the processes' logs, shown when the demo fails."""

AFFECTED: Final = 0
"""A developer whose receiver has the outage, and who asks for a replay: without automatic recovery.
It gets a quarter of all events."""

RECOVERING: Final = 1
"""A developer whose receiver has the same outage, and who asks for nothing."""

RECOVERY_POLL_S: Final = 0.1


def run_demo(events: int) -> bool:
    """Run the demo in a temporary folder. Returns whether all events arrived exactly once."""
    metrics_port = free_port()
    with tempfile.TemporaryDirectory(prefix="rewind-demo-") as folder:
        settings = load_settings(
            data_dir=str(Path(folder)),
            port="0",
            broker_port="0",
            brokers="1",
            zookeeper="",
            allow_private_targets="true",
            # One attempt: the default schedule of retries takes three days.
            live_delays_s="0",
            scheduled_retries_s="",
            # Even on a slow machine, only the outage causes missed events.
            live_queue_max=str(QUEUED_MAX),
            live_metrics_port=str(metrics_port),
            # A failing receiver is probed often.
            retry_cap_s="1",
        )
        log_lines: deque[str] = deque(maxlen=LINES_KEPT)
        try:
            with LocalService(settings, hear=log_lines.append) as service:
                is_complete = asyncio.run(
                    _run(service.api_url, service.operator_key, LiveProgress(metrics_port), events)
                )
        except (ApiError, ChildDidNotStart, HTTPError, StoreError, OSError) as error:
            sys.stderr.writelines(log_lines)
            exit_with_error(str(error))
    return is_complete


async def _run(api_url: str, key: str, live: LiveProgress, events: int) -> bool:
    with ApiClient(api_url, key) as client:
        platform = AccountPlatform(client, WEBHOOKS, live)
        platform.developers[AFFECTED].auto_recovery = False
        async with platform:
            affected, recovering = (platform.developers[each] for each in (AFFECTED, RECOVERING))
            _print_step(f"service at {api_url}: broker, API, live path and worker on SQLite")
            _print_step(f"{WEBHOOKS} webhooks verified, with a rule each")
            window = await _publish_hour(platform, affected, recovering, events)
            job = client.create_replay(affected.webhook_id, *window)
            _print_step(f"POST /replays -> {job['id']}")
            # In a thread: the receiver runs on this event loop.
            job = await asyncio.to_thread(follow, client, job)
            is_complete = job["state"] == "COMPLETED" and _compare_ids(affected)
            _print_step(f"no replay is requested for {recovering.webhook_id}")
            recovery = await asyncio.to_thread(_find_recovery, client, recovering.webhook_id)
            _print_step(f"its automatic recovery: {recovery['id']}")
            recovery = await asyncio.to_thread(follow, client, recovery)
            is_complete &= recovery["state"] == "COMPLETED" and _compare_ids(recovering)
    _print_manual_steps(*window)
    return is_complete


def _find_recovery(client: ApiClient, webhook_id: str) -> dict[str, Any]:
    """Return the replay that the service creates by itself, once it exists."""
    while not (found := client.replays(webhookId=webhook_id, limit=1)):
        time.sleep(RECOVERY_POLL_S)
    return found[0]


async def _publish_hour(
    platform: AccountPlatform, affected: Developer, recovering: Developer, events: int
) -> tuple[str, str]:
    """Publish an hour of events. Returns the window of the outage, the half hour in its middle."""
    down, up = events // 4, events * 3 // 4
    _print_step(f"publishing {events:,} events, an hour of account activity")
    _print_step("live delivery makes one attempt in this demo (default: after 0, 3, 27 and 242 s)")
    await platform.publish(0, down, events)
    await affected.receiver.stop()
    await recovering.receiver.stop()
    start = platform.event_time_ms(down, events)
    both = f"receivers of {affected.webhook_id} and {recovering.webhook_id}"
    _print_step(f"{both} go DOWN at {format_time(start)}")
    await platform.publish(down, up, events, held=1)
    await affected.receiver.start()
    await recovering.receiver.start()
    end = platform.event_time_ms(up, events)
    _print_step(f"{both} are UP again at {format_time(end)}")
    await platform.publish(up, events, events)
    expected, received = len(affected.expected), len(affected.received)
    missed = expected - received
    _print_step(f"expected {expected:,}, received {received:,}: {missed:,} MISSED")
    return format_time(start), format_time(end)


def _compare_ids(affected: Developer) -> bool:
    expected, received = set(affected.expected), affected.received
    missing = expected.difference(received)
    duplicates = len(received) - len(set(received))
    unexpected = set(received) - expected
    is_complete = not missing and not duplicates and not unexpected
    _print_step(
        f"comparison by event id: expected {len(expected):,}, received {len(received):,}, "
        f"missing {len(missing)}, duplicate {duplicates}, unexpected {len(unexpected)}: "
        + ("every event exactly once" if is_complete else "FAILED")
    )
    return is_complete


def _print_manual_steps(start: str, end: str) -> None:
    click.echo(
        f"""
To try it yourself, run `make up`, then in another terminal (the first response has WEBHOOK_ID):

  KEY="authorization: Bearer $(cat .rewind/operator.key)"

  curl -s http://127.0.0.1:8000/webhooks -H "$KEY" -H 'content-type: application/json' \\
    -d '{{"url": "https://YOUR-RECEIVER/hooks", "description": "mine"}}'

  curl -s http://127.0.0.1:8000/webhooks/WEBHOOK_ID/rules/mine -X PUT -H "$KEY" \\
    -H 'content-type: application/json' \\
    -d '{{"eventTypes": ["follow.*"], "where": {{"data.userId": "42"}}}}'

  curl -s http://127.0.0.1:8000/events -H "$KEY" -H 'content-type: application/json' \\
    -d '{{"id": "evt_1", "type": "follow.created", "time": "{start}",
         "data": {{"userId": "42"}}}}'

  curl -s http://127.0.0.1:8000/replays -H "$KEY" -H 'content-type: application/json' \\
    -d '{{"webhookId": "WEBHOOK_ID", "from": "{start}", "to": "{end}"}}'

  curl -s http://127.0.0.1:8000/replays/REPLAY_ID -H "$KEY"
"""
    )


def _print_step(line: str) -> None:
    click.echo(f"· {line}", err=True)
