"""The demo: a receiver goes down, a replay delivers what it missed, and a count proves it."""

import asyncio
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Final

import click
from httpx import HTTPError

from app.cli.api_client import ApiClient, ApiRefused
from app.cli.demo_platform import WAITING_MAX, AccountPlatform, Developer
from app.cli.live_watch import LiveWatch, free_port
from app.cli.options import load_settings, refuse
from app.cli.progress_bar import follow
from app.cli.service import LocalService
from app.domain.windows import format_time
from app.store import StoreError
from logbroker.embedded import ChildDidNotStart

WEBHOOKS: Final = 40
EVENTS: Final = 24_000
OUTAGE: Final = (6_000, 18_000)
"""The receiver is down from the first of these events to before the second."""

LINES_KEPT: Final = 50
"""What the processes said last, shown when the demo cannot go on."""

CHOSEN: Final = 0
"""The developer whose receiver goes down; it is owed a quarter of all events."""


def run_demo() -> bool:
    """Run the demo on a temporary folder; whether the proof holds. Ends the process on an error."""
    metrics_port = free_port()
    with tempfile.TemporaryDirectory(prefix="rewind-demo-") as folder:
        settings = load_settings(
            data_dir=str(Path(folder)),
            port="0",
            broker_port="0",
            brokers="1",
            zookeeper="",
            allow_private_targets="true",
            # One attempt: nobody wants to wait four and a half minutes until the last one is over.
            live_delays_s="0",
            # However slow the machine is, only what the receiver misses is left to a replay.
            live_queue_max=str(WAITING_MAX),
            live_metrics_port=str(metrics_port),
        )
        heard: deque[str] = deque(maxlen=LINES_KEPT)
        try:
            with LocalService(settings, hear=heard.append) as service:
                holds = asyncio.run(
                    _tell(service.api_url, service.operator_key, LiveWatch(metrics_port))
                )
        except (ApiRefused, ChildDidNotStart, HTTPError, StoreError, OSError) as error:
            sys.stderr.writelines(heard)
            refuse(str(error))
    return holds


async def _tell(api_url: str, key: str, live: LiveWatch) -> bool:
    with ApiClient(api_url, key) as client:
        platform = AccountPlatform(client, WEBHOOKS, live)
        async with platform:
            chosen = platform.developers[CHOSEN]
            _say(f"service at {api_url}: broker, API, live path and worker on SQLite")
            _say(f"{WEBHOOKS} webhooks proved that they are their owners'; each has a rule")
            window = await _live_hour(platform, chosen)
            job = client.create_replay(chosen.webhook_id, *window)
            _say(f"POST /replays -> {job['id']}")
            # The receiver lives on this loop, so the bar is drawn from another thread.
            job = await asyncio.to_thread(follow, client, job)
    holds = job["state"] == "COMPLETED" and _prove(chosen)
    _by_hand(*window)
    return holds


async def _live_hour(platform: AccountPlatform, chosen: Developer) -> tuple[str, str]:
    """Publish an hour of events with an outage in it; the window of the outage."""
    down, back = OUTAGE
    _say(f"the platform publishes {EVENTS:,} events, an hour of account activity")
    _say("the live path delivers each once, and leaves what is not taken to a replay (this demo;")
    _say("  as a rule it attempts after 0, 3, 27 and 242 s before it does)")
    await platform.publish(0, down, EVENTS)
    await chosen.receiver.stop()
    start = platform.time_of(down, EVENTS)
    _say(f"receiver of {chosen.webhook_id} goes DOWN at {format_time(start)}")
    await platform.publish(down, back, EVENTS)
    await chosen.receiver.start()
    end = platform.time_of(back, EVENTS)
    _say(f"receiver of {chosen.webhook_id} is back  at {format_time(end)}")
    await platform.publish(back, EVENTS, EVENTS)
    missed = len(chosen.owed) - len(chosen.received)
    _say(f"owed {len(chosen.owed):,}, received {len(chosen.received):,}: {missed:,} MISSED")
    return format_time(start), format_time(end)


def _prove(chosen: Developer) -> bool:
    owed, received = set(chosen.owed), chosen.received
    missing = owed.difference(received)
    twice = len(received) - len(set(received))
    strange = set(received) - owed
    holds = not missing and not twice and not strange
    _say(
        f"proof by event id: owed {len(owed):,}, received {len(received):,}, "
        f"missing {len(missing)}, twice {twice}, not owed {len(strange)}: "
        + ("every event, none twice" if holds else "THE PROOF FAILS")
    )
    return holds


def _by_hand(start: str, end: str) -> None:
    click.echo(
        f"""
The same by hand: `make up` in one terminal, then in another (the first answer has WEBHOOK_ID)

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


def _say(line: str) -> None:
    click.echo(f"· {line}", err=True)
