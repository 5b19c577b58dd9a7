"""A webhook is notified of the end of its replay."""

import asyncio
import json
import logging

import pytest

from app.domain.model import NewReplay, Webhook, Window
from app.domain.options import NoticeStyle, ReplayOptions
from tests.integration.replay_workers.worker_bench import BEGIN_MS, Bench
from tests.support.processes.waiting import until_async

WINDOW = Window(BEGIN_MS, BEGIN_MS + 1_000)


async def cancelled_replay(bench: Bench, webhook: Webhook, **options: object) -> str:
    """The id of a replay with `options`, which is cancelled at once."""
    style = options.pop("notice", NoticeStyle.REWIND)
    assert isinstance(style, NoticeStyle)
    new = NewReplay(webhook.id, WINDOW, ReplayOptions(**options), notice=style)  # type: ignore[arg-type]
    return bench.store.create_replay(new)[0].id


def test_the_notice_of_a_completed_replay_has_its_counts(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        replay = bench.replay(webhook)
        async with bench.worker():
            await until_async(lambda: bool(bench.notices), "a notice was received")
        (notice,) = bench.notices
        assert notice.status == 204  # the receiver verifies signatures
        assert (notice.event_id, notice.replay_id) == (f"{replay.id}-completed", replay.id)
        document = json.loads(notice.body)
        assert document["type"] == "replay.completed"
        assert document["data"]["counts"] == {"delivered": 30, "duplicates": 0, "failed": 0}

    asyncio.run(scenario())


def test_the_end_of_a_replay_wakes_its_worker_for_the_notice(bench: Bench) -> None:
    bench.change(poll_interval_s=3_600.0)

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        bench.replay(webhook)
        async with bench.worker():
            await until_async(lambda: bool(bench.notices), "a notice was received")

    asyncio.run(scenario())


def test_a_notice_is_sent_once_by_several_workers(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")

    async def scenario() -> None:
        webhook = await bench.webhook()
        replays = []
        for _ in range(20):
            replays.append(await cancelled_replay(bench, webhook))
            bench.store.cancel_replay(replays[-1])
        async with bench.worker(), bench.worker():
            await until_async(lambda: caplog.messages.count("notice-sent") == 20, "all were sent")
        assert sorted(notice.replay_id or "" for notice in bench.notices) == sorted(replays)
        assert bench.store.claim_notice(1.0) is None

    asyncio.run(scenario())


def test_a_notice_in_twitters_format_is_sent_on_request(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        replay_id = await cancelled_replay(bench, webhook, notice=NoticeStyle.TWITTER)
        bench.store.cancel_replay(replay_id)
        async with bench.worker():
            await until_async(lambda: bool(bench.notices), "a notice was received")
        (status,) = json.loads(bench.notices[0].body).values()
        assert (status["job_id"], status["job_state"]) == (replay_id, "Incomplete")

    asyncio.run(scenario())


def test_a_failed_notice_is_retried_with_the_same_id(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        bench.receiver.answer(503)
        bench.store.cancel_replay(await cancelled_replay(bench, webhook))
        async with bench.worker():
            await until_async(lambda: len(bench.notices) == 1, "the first notice was rejected")
            bench.receiver.answer(204)
            # The first pause is one of three seconds.
            await until_async(lambda: len(bench.notices) == 2, "the notice was sent again")
        first, second = bench.notices
        assert (first.status, second.status) == (503, 204)
        assert (first.event_id, first.body) == (second.event_id, second.body)

    asyncio.run(scenario())


def test_a_notice_is_sent_to_the_target_url_of_the_replay(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        target_url = f"{bench.receiver.url}/elsewhere"
        bench.store.cancel_replay(await cancelled_replay(bench, webhook, target_url=target_url))
        async with bench.worker():
            await until_async(lambda: bool(bench.notices), "a notice was received")
        assert bench.notices[0].path == "/elsewhere"

    asyncio.run(scenario())


def test_a_hanging_receiver_of_notices_delays_no_replay(bench: Bench) -> None:
    async def scenario() -> None:
        hanging = bench.store_webhook("http://127.0.0.1:1/unused")
        sessions: list[asyncio.StreamWriter] = []

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sessions.append(writer)
            await reader.read()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        bench.store.update_webhook(hanging.id, url=url)
        bench.store.enable_webhook(hanging.id, url)
        for _ in range(12):
            bench.store.cancel_replay(await cancelled_replay(bench, hanging))
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 50))
        replay = bench.replay(webhook)
        async with bench.worker():
            await until_async(lambda: len(sessions) == 8, "as many wait as may at a time")
            replay = await bench.finished(replay)
            assert len(sessions) == 8
            for writer in sessions:
                writer.transport.abort()
            server.close()
        assert replay.counts.delivered == 50

    asyncio.run(scenario())
