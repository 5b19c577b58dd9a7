"""Progress streams, served without a server: heartbeats, ends and limits."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest
from sqlalchemy import make_url
from starlette.types import Message

from app.api.replay_progress import ProgressStream
from app.domain.model import NewReplay, NewWebhook, Replay, Webhook, Window
from app.services.errors import NoStreamsLeft, TooManyStreams
from app.services.progress_watch import ProgressWatch, version_of
from app.store import Store, StoreUnavailable
from app.webhooks.signing import new_secret
from tests.support.database.mariadb import MariaDbServer
from tests.support.database.migrated import ReusedStore, make_migrated
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def replay(store: Store, webhook: Webhook) -> Replay:
    return store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))[0]


class Answer:
    """What one client gets of a stream."""

    def __init__(self) -> None:
        self.text = ""
        self.is_over = False
        self._came = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.text += message["body"].decode()
            self.is_over = not message.get("more_body", False)
            self._came.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._came.clear()
                await self._came.wait()


async def _never() -> Message:
    return await asyncio.Future()


@asynccontextmanager
async def served(
    stream: ProgressStream, receive: Callable[[], Awaitable[Message]] = _never
) -> AsyncIterator[Answer]:
    answer = Answer()
    scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
    task = asyncio.create_task(stream(scope, receive, answer.send))
    try:
        yield answer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_stream_without_changes_sends_heartbeats(store: Store, replay: Replay) -> None:
    watch = ProgressWatch(store)
    async with served(ProgressStream(watch, replay, "key_1", None, heartbeat_s=0.01)) as answer:
        await answer.until(lambda: answer.text.count(": heartbeat\n\n") >= 3)
        assert answer.text.startswith("retry: 2000\n\nevent: progress\nid: ")
        assert answer.text.count("event: progress") == 1


async def test_a_stream_ends_after_its_maximum_time_without_an_end_event(
    store: Store, replay: Replay
) -> None:
    watch = ProgressWatch(store)
    async with served(ProgressStream(watch, replay, "key_1", None, stream_s_max=0.01)) as answer:
        await answer.until(lambda: answer.is_over)
        assert "event: end" not in answer.text


async def test_a_state_that_the_client_has_is_not_sent_again(store: Store, replay: Replay) -> None:
    stream = ProgressStream(
        ProgressWatch(store), replay, "key_1", version_of(replay), heartbeat_s=0.01
    )
    async with served(stream) as answer:
        await answer.until(lambda: ": heartbeat" in answer.text)
        assert "event:" not in answer.text


async def test_a_stream_of_a_deleted_replay_ends(store: Store, replay: Replay) -> None:
    gone = replace(replay, id="rpl_0")
    async with served(ProgressStream(ProgressWatch(store), gone, "key_1", None)) as answer:
        await answer.until(lambda: answer.is_over)
        assert "event: end" not in answer.text


@pytest.mark.processes
async def test_a_database_outage_does_not_end_a_stream(
    mariadb: MariaDbServer,
) -> None:
    with TcpLink(mariadb.port) as link:
        url = str(make_url(mariadb.create_database()).set(port=link.port))
        make_migrated(url)
        with closing(Store.open(url)) as store:
            await see_through_an_outage(store, link)


async def see_through_an_outage(store: Store, link: TcpLink) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
    stream = ProgressStream(ProgressWatch(store), replay, "key_1", None, heartbeat_s=0.01)
    async with served(stream) as answer:
        await answer.until(lambda: "event: progress" in answer.text)
        link.cut()
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(store.replay, replay.id)
        said = answer.text
        await answer.until(lambda: ": heartbeat" in answer.text.removeprefix(said))
        link.mend()
        await asyncio.to_thread(store.cancel_replay, replay.id)
        await answer.until(lambda: answer.is_over)
    assert answer.text.count("event: end") == 1
    assert answer.text.count("event: progress") == 2


async def test_an_unexpected_error_ends_the_stream_and_is_logged(
    reused_store: ReusedStore, store: Store, replay: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(ProgressStream(ProgressWatch(store), replay, "key_1", None)) as answer:
        await answer.until(lambda: "event: progress" in answer.text)
        with closing(sqlite3.connect(reused_store.file)) as database:
            database.execute("UPDATE replays SET state = 'DREAMING'")
            database.commit()
        await answer.until(lambda: answer.is_over)
    assert "event: end" not in answer.text
    assert "DREAMING" in caplog.text


async def test_closing_the_watch_ends_all_streams(store: Store, replay: Replay) -> None:
    watch = ProgressWatch(store)
    async with served(ProgressStream(watch, replay, "key_1", None)) as answer:
        await answer.until(lambda: "event: progress" in answer.text)
        watch.close()
        await answer.until(lambda: answer.is_over)
    with pytest.raises(NoStreamsLeft), watch.stream(replay, "key_1"):
        pass


async def test_a_client_that_disconnects_frees_its_stream(store: Store, replay: Replay) -> None:
    watch = ProgressWatch(store, streams_max=1)
    leaving = asyncio.Event()

    async def receive() -> Message:
        await leaving.wait()
        return {"type": "http.disconnect"}

    async with served(ProgressStream(watch, replay, "key_1", None), receive) as answer:
        await answer.until(lambda: "event: progress" in answer.text)
        with pytest.raises(NoStreamsLeft), watch.stream(replay, "key_2"):
            pass
        leaving.set()
        async with asyncio.timeout(DEADLINE_S):
            while not _has_free_stream(watch, replay):  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.01)


def _has_free_stream(watch: ProgressWatch, replay: Replay) -> bool:
    try:
        with watch.stream(replay, "key_2"):
            return True
    except NoStreamsLeft:
        return False


async def test_streams_of_one_replay_share_one_poll(store: Store, replay: Replay) -> None:
    watch = ProgressWatch(store)
    before = len(asyncio.all_tasks())
    with watch.stream(replay, "key_1") as first, watch.stream(replay, "key_2") as second:
        assert first is second
        assert len(asyncio.all_tasks()) == before + 1
        changed = first.changed
        store.pause_replay(replay.id)
        async with asyncio.timeout(DEADLINE_S):
            await changed.wait()
        assert second.replay.state == "PAUSED"


async def test_streams_are_limited_per_key(store: Store, replay: Replay) -> None:
    watch = ProgressWatch(store, streams_per_key_max=1)
    with watch.stream(replay, "key_1"):
        with pytest.raises(TooManyStreams), watch.stream(replay, "key_1"):
            pass
        assert _has_free_stream(watch, replay)
    with watch.stream(replay, "key_1"):
        pass
