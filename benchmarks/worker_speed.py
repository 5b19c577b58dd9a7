"""Measures the replays of one worker process, in events/s and CPU per event.

The baseline of single events is the sender alone, to the same receiver and without a log; a bare
socket shows the limit of the receiver. The baseline of batches is a stock consumer that counts the
same records. Where one record in a hundred belongs to the webhook, the unit is scanned records/s.
Receiver and baselines run in separate processes.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from app.domain.model import NewReplay
from app.domain.options import EVENTS_PER_SECOND_MAX, ReplayOptions
from app.log.topics import DELIVERY_LOG
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from benchmarks.delivery_history import BODY_BYTES, History
from benchmarks.running_broker import cpu_s
from benchmarks.running_process import RunningProcess
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line, share_at_least
from benchmarks.timing_receiver import TimingReceiver, timing_receiver
from benchmarks.webhook_sender import ping, repeat, signed_post

BATCH_EVENTS: Final = 100
SHARE: Final = 100
"""In the sparse history, one of this many records belongs to the webhook."""

IN_FLIGHT: Final = 16
"""A worker's default."""

EVENT: Final = b"x" * BODY_BYTES

CONSUMED_AT_ONCE: Final = 1_000
TIMEOUT_S: Final = 30.0


class Replayed(NamedTuple):
    """One replay: events/s at the receiver, and CPU of the worker per event."""

    events_per_s: float
    cpu_us: float


class Bench(NamedTuple):
    """The service, one worker, the receiver, and two histories."""

    stage: ServiceStage
    worker: RunningProcess
    receiver: TimingReceiver
    client: Executor
    whole: History
    """Every record belongs to the webhook."""
    sparse: History


class Figures(NamedTuple):
    """One round, in events/s or records/s."""

    single: Replayed
    batched: Replayed
    scan: Replayed
    sender: float
    receiver: float
    reader: float
    sparse_reader: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round."""
    with _bench(scale, folder) as bench:
        rounds = [_round(bench, scale) for _ in range(scale.rounds)]
        return _lines(rounds)


@contextmanager
def _bench(scale: Scale, folder: Path) -> Iterator[Bench]:
    spawn = multiprocessing.get_context("spawn")
    with (
        service_stage(folder) as stage,
        timing_receiver() as receiver,
        ProcessPoolExecutor(1, spawn) as client,
        stage.process("worker") as worker,
    ):
        whole, sparse = stage.webhooks_in_separate_partitions([receiver.url, receiver.url])
        partitions, scanned = stage.settings.partitions, scale.scanned_records
        histories = (
            History.until_now(whole.id, partitions, scale.batched_events, scale.batched_events, 1),
            History.until_now(sparse.id, partitions, scanned, scanned // SHARE, SHARE),
        )
        for history in histories:
            stage.load(history)
        yield Bench(stage, worker, receiver, client, *histories)


def _round(bench: Bench, scale: Scale) -> Figures:
    receiver, client = bench.receiver, bench.client
    single = _replay(bench, bench.whole, scale.single_events, 1)
    posts, seconds = client.submit(send, receiver.url, scale.webhook_s).result()
    pings, ping_s = client.submit(ping_receiver, receiver.port, scale.webhook_s).result()
    receiver.report()
    batched = _replay(bench, bench.whole, bench.whole.events, BATCH_EVENTS)
    reader = _read(bench, bench.whole)
    scan = _replay(bench, bench.sparse, bench.sparse.events, BATCH_EVENTS)
    return Figures(
        single,
        batched,
        Replayed(scan.events_per_s * SHARE, scan.cpu_us / SHARE),
        posts / seconds,
        pings / ping_s,
        reader,
        _read(bench, bench.sparse),
    )


def _replay(bench: Bench, history: History, events: int, batch_size: int) -> Replayed:
    """Replay the first `events` of a history, and check the number of received events."""
    options = ReplayOptions(max_events_per_second=EVENTS_PER_SECOND_MAX, batch_size=batch_size)
    before_s = cpu_s(bench.worker.process)
    replay = bench.stage.create_replay(
        NewReplay(history.webhook_id, history.window_of(events), options)
    )
    bench.stage.wait_for(replay, events)
    spent_s = cpu_s(bench.worker.process) - before_s
    report = bench.receiver.report()
    assert (report.events, report.event_ids) == (events, events), report
    return Replayed(report.events_per_s, spent_s * 1e6 / events)


def _read(bench: Bench, history: History) -> float:
    servers = bench.stage.broker.bootstrap_servers
    seconds = bench.client.submit(read, servers, history.partition, history.records).result()
    return history.records / seconds


def read(bootstrap_servers: str, partition: int, records: int) -> float:
    """Read a partition with a stock consumer; return the seconds after the first record."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.queue.backoff.ms": 10,
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(DELIVERY_LOG, partition, 0)])
        left = records - len(consumer.consume(1, TIMEOUT_S))
        start = time.perf_counter()
        while left:
            fetched = consumer.consume(min(left, CONSUMED_AT_ONCE), TIMEOUT_S)
            assert fetched, f"{left} of {records} records are missing"
            left -= len(fetched)
        return time.perf_counter() - start


def send(url: str, seconds: float) -> tuple[int, float]:
    """POST one event repeatedly with the service's sender; return the POSTs and the seconds."""
    start = time.perf_counter()
    count = asyncio.run(_send(url, seconds))
    return count, time.perf_counter() - start


async def _send(url: str, seconds: float) -> int:
    async with WebhookSender(Guard(allow_private=True)) as sender:
        return await repeat(signed_post(sender, url, EVENT), IN_FLIGHT, seconds)


def ping_receiver(port: int, seconds: float) -> tuple[int, float]:
    """Send the same request repeatedly on bare sockets; return the POSTs and the seconds."""
    start = time.perf_counter()
    count = asyncio.run(ping(port, IN_FLIGHT, seconds))
    return count, time.perf_counter() - start


def _lines(rounds: list[Figures]) -> list[Line]:
    sender = Baseline("bare sender, same receiver", median(each.sender for each in rounds))
    reader = Baseline("bare consumer, same records", median(each.reader for each in rounds))
    sparse = Baseline("bare consumer, same records", median(each.sparse_reader for each in rounds))
    receiver = median(each.receiver for each in rounds)
    scanned = median(each.scan.events_per_s for each in rounds)
    single = [each.single for each in rounds]
    batched = [each.batched for each in rounds]
    return [
        Line("batchSize 1", _rate(single), "events/s", sender, share_at_least(0.6)),
        Line("  worker CPU per event", _cpu_us(single), "us"),
        Line("  bare socket, same receiver", receiver, "POSTs/s"),
        Line("batchSize 100", _rate(batched), "events/s", reader, share_at_least(0.4)),
        Line("  worker CPU per event", _cpu_us(batched), "us"),
        Line("1 record in 100 for the webhook", scanned, "records/s", sparse, share_at_least(0.8)),
        Line("  payload of scanned records", scanned * BODY_BYTES / 1e6, "MB/s"),
        Line("  worker CPU per record", _cpu_us([each.scan for each in rounds]), "us"),
    ]


def _rate(replays: list[Replayed]) -> float:
    return median(each.events_per_s for each in replays)


def _cpu_us(replays: list[Replayed]) -> float:
    return median(each.cpu_us for each in replays)
