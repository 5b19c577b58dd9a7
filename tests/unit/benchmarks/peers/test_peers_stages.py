"""The stages of the driver for webhook systems, with a system that repeats and loses events.

The system of these tests delivers an event at a chosen moment: when it is published, when missed
events are asked for, or when the driver pauses. The clock of the driver's waits moves with its
pauses.
"""

import datetime as dt
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks import http_load
from benchmarks.http_load import HttpRequest
from benchmarks.peers.webhooks.marked_receiver import MarkedReceiver, mark, marked_receiver
from benchmarks.peers.webhooks.measuring import (
    GIVE_UP_S,
    POLL_S,
    QUIET_S,
    ArrivalWait,
    Cost,
    Stage,
    Stages,
    WebhookScale,
)
from benchmarks.peers.webhooks.systems import WebhookSystem

pytestmark = pytest.mark.processes

SCALE = WebhookScale(missed=3, live=3, steady_s=0.015, idle_s=0.0)
"""Events 0 to 2 are missed, 3 to 5 are single publishes, 6 to 8 have the steady rate."""


@contextmanager
def accepting_server(on_number: Callable[[int], None]) -> Iterator[str]:
    """Run a server that passes on the number in the path of each POST, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            on_number(int(self.path.removeprefix("/")))
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class ScriptedSystem(WebhookSystem):
    """Delivers some events when they are published or asked for, others at pauses of the driver."""

    name = "Scripted"

    def __init__(self, receiver: MarkedReceiver) -> None:
        super().__init__("http://unused.example", "key")
        self.subscribe(f"http://127.0.0.1:{receiver.port}/hook")
        self.at_once: set[int] = set()
        self.asked: list[int] = []
        self.after_asking: list[int | None] = []
        self.at_pauses: list[int | None] = []
        self.records_at_s = 0.0
        self.clock_s = 0.0

    def subscribe(self, receiver_url: str) -> None:
        self._receiver_url = receiver_url

    def publish_request(self, number: int) -> HttpRequest:
        return http_load.encode("POST", f"/{number}", status=202)

    def has_recorded(self, failures: int) -> bool:
        return failures == 0 or self.clock_s >= self.records_at_s

    def bring_missed(self, since: dt.datetime) -> None:
        assert self.has_recorded(SCALE.missed), "asked before the failures are known"
        for number in self.asked:
            self.deliver(number)
        self.at_pauses = self.after_asking

    def accept(self, number: int) -> None:
        if number in self.at_once:
            self.deliver(number)

    def deliver(self, number: int) -> None:
        self._client.post(self._receiver_url, content=mark(number))

    def now_s(self) -> float:
        return self.clock_s

    def pause(self, seconds: float) -> None:
        """Let the time pass, and deliver one more event, or none."""
        self.clock_s += seconds
        number = self.at_pauses.pop(0) if self.at_pauses else None
        if number is not None:
            self.deliver(number)


class ArrivedCost(Cost):
    """Reports the number of missed events that have arrived in place of processor time."""

    def __init__(self, receiver: MarkedReceiver) -> None:
        super().__init__(())
        self._receiver = receiver

    def spent_s(self) -> float | None:
        return self._receiver.distinct(SCALE.missed_numbers)


@pytest.fixture(scope="module")
def running_receiver() -> Iterator[MarkedReceiver]:
    with marked_receiver("127.0.0.1") as receiver:
        yield receiver


@pytest.fixture
def receiver(running_receiver: MarkedReceiver) -> MarkedReceiver:
    running_receiver.answer(204)
    return running_receiver


@pytest.fixture
def system(receiver: MarkedReceiver) -> Iterator[ScriptedSystem]:
    with ScriptedSystem(receiver) as system, accepting_server(system.accept) as url:
        system.url = url
        yield system


@pytest.fixture
def stages(system: ScriptedSystem, receiver: MarkedReceiver) -> Stages:
    wait = ArrivalWait(receiver, system.now_s, system.pause)
    return Stages(system, wait, ArrivedCost(receiver), SCALE)


def figures(stage: Stage) -> dict[str, float]:
    return {line.name.strip(): line.figure for line in stage.lines}


def test_processor_time_is_read_after_the_last_missed_event_not_after_as_many_repeats(
    system: ScriptedSystem, stages: Stages
) -> None:
    system.at_once = {0, 1, 2}
    system.asked = [0, 0, 0]
    system.after_asking = [1, 2]
    found = figures(stages.missed())
    assert found["processor time for 1,000"] == 1_000
    assert (found["missing of 3"], found["sent twice"]) == (0, 2)


def test_missed_events_are_asked_for_when_the_system_has_recorded_all_failures(
    system: ScriptedSystem, stages: Stages
) -> None:
    system.at_once = {0, 1, 2}
    system.asked = [0, 1, 2]
    system.records_at_s = 20.0
    assert figures(stages.missed())["missing of 3"] == 0


def test_missed_events_are_asked_for_when_all_have_been_attempted(
    system: ScriptedSystem, stages: Stages
) -> None:
    pauses = int(2 * QUIET_S / POLL_S)
    system.at_once = {0, 1}
    system.at_pauses = [*([None] * pauses), 2]
    system.asked = [0, 1, 2]
    found = figures(stages.missed())
    assert (found["not attempted before"], found["missing of 3"]) == (0, 0)


def test_events_that_were_never_attempted_before_are_counted(
    system: ScriptedSystem, stages: Stages
) -> None:
    system.at_once = {0, 1}
    system.asked = [0, 1, 2]
    assert figures(stages.missed())["not attempted before"] == 1


def test_a_stage_ends_although_one_event_is_attempted_forever(
    system: ScriptedSystem, stages: Stages
) -> None:
    pauses = int(2 * GIVE_UP_S / POLL_S)
    system.at_pauses = [3] * pauses
    assert figures(stages.live())["missing of 3"] == 2
    assert system.clock_s == pytest.approx(GIVE_UP_S + POLL_S, abs=2 * POLL_S)


def test_late_missed_events_are_no_live_ones(system: ScriptedSystem, stages: Stages) -> None:
    for late in SCALE.missed_numbers:
        system.deliver(late)
    system.at_pauses = [3, 4]
    found = figures(stages.live())
    assert found["missing of 3"] == 1
    system.deliver(5)
    system.at_pauses = [6, 7]
    assert figures(stages.steady())["missing of 3"] == 1


def test_the_live_rate_starts_and_ends_with_live_events(
    system: ScriptedSystem, stages: Stages
) -> None:
    system.at_once = {3, 4, 5}
    stage = stages.live()
    assert stage.has_arrivals
    assert figures(stage)["single publishes, delivered live"] > 0
    assert figures(stage)["missing of 3"] == 0


def test_a_stage_without_arrivals_reports_that_all_events_are_missing(stages: Stages) -> None:
    for stage in (stages.missed(), stages.live(), stages.steady()):
        assert not stage.has_arrivals, stage.name
        assert figures(stage)["missing of 3"] == 3, stage.name
    assert math.isnan(figures(stage)["latency at 200/s, p50"])


def test_the_latency_of_a_single_arrival_is_its_p50_and_p99(
    system: ScriptedSystem, stages: Stages
) -> None:
    system.at_once = {7}
    stage = stages.steady()
    found = figures(stage)
    assert stage.has_arrivals
    assert found["latency at 200/s, p50"] == found["latency at 200/s, p99"] > 0
    assert found["missing of 3"] == 2
