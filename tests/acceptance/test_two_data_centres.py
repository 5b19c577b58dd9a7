"""One of two data centres is lost for good; the other delivers every event once."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from app.domain.delivery import LiveOutcome
from app.domain.windows import format_time, parse_time
from app.log.outcomes import decode_outcome
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS
from tests.support.http.receiver_thread import ReceiverThread, is_event
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.processes.waiting import until
from tests.support.service.data_centres import LATENESS_MS, DataCentre, Row, TwoDataCentres
from tests.support.service.live_service import LogRecord, now_ms
from tests.support.service.worker_service import worker_pid

pytestmark = pytest.mark.long

HOUR_MS = 3_600_000
ROUNDS = 10
PER_ROUND = 16
Copied = tuple[int, str | None, int, dict[str, str], bytes]


class Platform:
    """Publishes events for two webhooks: some to one by id, the others to both by rules."""

    def __init__(self, centres: TwoDataCentres) -> None:
        self.receivers = ReceiverThread(), ReceiverThread()
        self._centres = centres
        self._numbers = count()
        self.webhooks: tuple[str, str] = ("", "")
        self.expected: dict[str, list[str]] = {}
        """The unique ids of the events that are addressed to each webhook."""
        self.delivered_live: dict[str, Counter[str]] = {}
        """How often the live path delivered each event to each webhook."""
        self.left_to_rules = 0
        """How many were published that name no webhook."""
        self.is_up = True

    def register(self) -> None:
        first, second = self.receivers
        self.webhooks = (
            self._centres.webhook(first, "follow.*"),
            self._centres.webhook(second, "*"),
        )
        self.expected = {webhook_id: [] for webhook_id in self.webhooks}
        self.delivered_live = {webhook_id: Counter() for webhook_id in self.webhooks}

    def publish(self, number: int, *centres: DataCentre, time_ms: int | None = None) -> list[str]:
        """Send the same new events to each of these data centres: their ids."""
        events = [self._event(time_ms or now_ms()) for _ in range(number)]
        for each in centres:
            each.publish(events)
        for event in events:
            self.left_to_rules += 0 if "webhookId" in event else len(centres)
            for webhook_id in self._webhooks_of(event):
                self.expected[webhook_id].append(event["id"])
                if self.is_up:
                    self.delivered_live[webhook_id][event["id"]] += len(centres)
        return [event["id"] for event in events]

    def go_down(self) -> None:
        """One receiver is away, the other one refuses."""
        first, second = self.receivers
        first.go_down()
        second.answer(503)
        self.is_up = False

    def come_up(self) -> None:
        first, second = self.receivers
        first.come_up()
        second.answer(204)
        self.is_up = True

    def taken(self, webhook_id: str, replay_id: str | None) -> Counter[str]:
        """How often each event was taken from a replay, or from the live path."""
        receiver = self.receivers[self.webhooks.index(webhook_id)]
        return Counter(
            each.event_id
            for each in receiver.webhooks
            if each.replay_id == replay_id and each.status == 204 and is_event(each)
        )

    def missed(self, webhook_id: str) -> Counter[str]:
        """Return the unique ids of the events that the live path did not deliver."""
        return Counter(
            each
            for each in self.expected[webhook_id]
            if each not in self.delivered_live[webhook_id]
        )

    def has_delivered_live(self) -> bool:
        """Report whether the live path has delivered at least the expected events."""
        return all(self.taken(each, None) >= self.delivered_live[each] for each in self.webhooks)

    def check_delivered_live(self) -> None:
        for each in self.webhooks:
            assert self.taken(each, None) == self.delivered_live[each]

    def _event(self, time_ms: int) -> Row:
        number = next(self._numbers)
        kinds: Sequence[Row] = (
            {"type": "like.created", "webhookId": self.webhooks[0]},
            {"type": "follow.deleted", "webhookId": self.webhooks[1]},
            {"type": "follow.created"},
            {"type": "like.created"},
        )
        return kinds[number % len(kinds)] | {
            "id": f"evt_{number:04}",
            "time": format_time(time_ms),
            "data": {"number": number},
        }

    def _webhooks_of(self, event: Row) -> Sequence[str]:
        if "webhookId" in event:
            return [event["webhookId"]]
        return self.webhooks if event["type"].startswith("follow") else self.webhooks[1:]


@pytest.fixture
def centres(tmp_path: Path, database_url: str) -> Iterator[TwoDataCentres]:
    with TwoDataCentres(tmp_path, database_url) as centres:
        yield centres


@pytest.fixture
def platform(centres: TwoDataCentres) -> Iterator[Platform]:
    platform = Platform(centres)
    first, second = platform.receivers
    with first, second:
        platform.register()
        yield platform


# Who has two data centres has one database for both, on a server.
@pytest.mark.parametrize("database_url", ["mariadb"], indirect=True)
def test_all_deliveries_survive_the_loss_of_a_data_centre(
    centres: TwoDataCentres, platform: Platform
) -> None:
    a, b = centres.a, centres.b
    start_ms = now_ms()
    publish_to_all(platform, a, b)
    until(platform.has_delivered_live, "all events are delivered live")

    platform.go_down()
    fall_apart(centres, platform)
    old_ms = start_ms - HOUR_MS
    old = publish_to_all(platform, a, b, time_ms=old_ms)
    until(lambda: a.is_settled() and b.is_settled(), "the live path has tried all")
    assert origins(b.read(DELIVERY_LOG), old) == {"b"}
    platform.come_up()
    centres.to_b.serve()
    until(lambda: centres.is_level, "the mirrors have caught up")
    check_logs(a, b)
    check_live(platform, a, b)

    left_behind = lose(centres, platform)
    assert b.job(left_behind)["origin"] == "a"
    assert b.api.post(f"/replays/{left_behind}/cancel").status_code == 200
    check_replays(platform, b, old_ms, old)
    platform.check_delivered_live()
    check_audit(platform, b)


def publish_to_all(platform: Platform, *centres: DataCentre, **when: int) -> list[str]:
    """Send some events to each data centre, and some to all: the ids."""
    published = [platform.publish(PER_ROUND, each, **when) for each in centres]
    return sum(published, platform.publish(PER_ROUND, *centres, **when))


def fall_apart(centres: TwoDataCentres, platform: Platform) -> None:
    """Publish on both sides, and kill the mirror to b midway, for longer than the lateness."""
    for number in range(ROUNDS):
        ids = platform.publish(PER_ROUND, centres.a)
        if number == ROUNDS // 2:
            until(lambda: "a" in origins(centres.b.read(DELIVERY_LOG), ids), "a copy")  # noqa: B023
            centres.to_b.kill()
        platform.publish(PER_ROUND, centres.b)
    apart_ms = now_ms()
    until(lambda: now_ms() > apart_ms + LATENESS_MS, "what is mirrored now is late")


def lose(centres: TwoDataCentres, platform: Platform) -> str:
    """Lose data centre a with a replay under way there: the replay."""
    a, b = centres.a, centres.b
    _, second = platform.receivers
    webhook_id = platform.webhooks[1]
    second.answer(204, delay_s=1.0)
    window = {"from": format_time(now_ms() - 2 * HOUR_MS), "to": format_time(now_ms())}
    replay_id = a.ask_replay(webhookId=webhook_id, maxInFlight=1, **window)
    until(lambda: platform.taken(webhook_id, replay_id), "it has begun")
    other = b.finished(b.ask_replay(webhookId=platform.webhooks[0], **window))
    assert worker_pid(b.api, b.job(replay_id)["worker"]) == a.worker.pid
    assert worker_pid(b.api, other["worker"]) == b.worker.pid
    a.take_no_more()
    until(lambda: centres.is_level, "the mirrors have caught up")
    centres.lose_a()
    second.answer(204)
    return replay_id


def origins(records: Sequence[LogRecord], ids: Sequence[str]) -> set[str]:
    """Where some events were made, those that are there."""
    wanted = set(ids)
    return {each.headers["origin"] for each in records if each.headers["event-id"] in wanted}


def check_logs(a: DataCentre, b: DataCentre) -> None:
    """Each log has what the other one has, in its order; only the killed mirror repeated."""
    for topic in (DELIVERY_LOG, DELIVERY_OUTCOMES):
        at_a, at_b = a.read(topic), b.read(topic)
        assert {each.headers["origin"] for each in at_a} == {"a", "b"}
        for partition in {each.partition for each in at_a}:
            assert made(at_a, "b", partition) == made(at_b, "b", partition)
            source, copy = made(at_a, "a", partition), made(at_b, "a", partition)
            assert is_copied_with_a_restart(source, copy), f"{len(source)} became {len(copy)}"


def made(records: Sequence[LogRecord], origin: str, partition: int) -> list[Copied]:
    """What a mirror keeps, of the records of an origin in a partition, in their order."""
    return [
        (each.partition, each.key, each.time_ms, each.headers, each.value)
        for each in records
        if each.headers["origin"] == origin and each.partition == partition
    ]


def is_copied_with_a_restart(source: list[Copied], copy: list[Copied]) -> bool:
    """Whether a copy is its source, or at one place goes back by as much as it has more."""
    more = len(copy) - len(source)
    places = range(more, len(source) + 1)
    return more >= 0 and any(copy == source[:at] + source[at - more :] for at in places)


def check_live(platform: Platform, a: DataCentre, b: DataCentre) -> None:
    """Each record was tried live once, in the data centre where it was made and in no other."""
    platform.check_delivered_live()
    for each in (a, b):
        records = {(at.partition, at.offset): at for at in each.read(DELIVERY_LOG)}
        own = {place for place, at in records.items() if at.headers["origin"] == each.name}
        reported = [
            outcome
            for record in each.read(DELIVERY_OUTCOMES)
            if record.headers["origin"] == each.name
            and (outcome := decode_outcome(record.value)) is not None
        ]
        assert sorted((at.partition, at.offset) for at in reported) == sorted(own)
        assert {at.outcome for at in reported} == {LiveOutcome.DELIVERED, LiveOutcome.FAILED}
        foreign = len(records) - len(own)
        assert each.live_metric("rewind_live_mirrored_total") >= foreign > 0
        assert each.live_metric("rewind_live_joined") == 1


def check_replays(platform: Platform, b: DataCentre, old_ms: int, old: Sequence[str]) -> None:
    """Check that replays at b deliver each event of a window, also mirrored and late ones, once."""
    logged = b.read(DELIVERY_LOG)
    whole = {"from": format_time(old_ms), "to": format_time(now_ms())}
    late = {"from": format_time(old_ms), "to": format_time(old_ms + 1)}
    first, second = platform.webhooks
    # `lose` has replayed all events of the first one at b.
    missed = {first: Counter[str](), second: platform.missed(second)}
    for request, bound in (
        (whole | {"only": "failed"}, missed),
        (whole, platform.expected),
        (
            late,
            {each: set(old).intersection(platform.expected[each]) for each in platform.webhooks},
        ),
    ):
        asked = {each: b.ask_replay(webhookId=each, **request) for each in platform.webhooks}
        for webhook_id, replay_id in asked.items():
            check_replay(platform, b.finished(replay_id), Counter(bound[webhook_id]), logged)


def check_replay(
    platform: Platform, job: Row, bound: Counter[str], logged: Sequence[LogRecord]
) -> None:
    webhook_id = job["webhookId"]
    assert (job["state"], job["error"], job["origin"]) == ("COMPLETED", None, "b")
    assert platform.taken(webhook_id, job["id"]) == bound
    start_ms, end_ms = parse_time(job["from"]), parse_time(job["to"])
    there = [
        each.headers["event-id"]
        for each in logged
        if each.key == webhook_id and start_ms <= each.time_ms < end_ms
    ]
    assert job["counts"] == {
        "delivered": len(bound),
        # A copy of what needs not be sent is one, too.
        "duplicates": len(there) - len(set(there)),
        "failed": 0,
    }


def check_audit(platform: Platform, b: DataCentre) -> None:
    """The audit at b tells of all that was published, here and there, that nothing is missing."""
    records = b.read(DELIVERY_LOG)
    logged = [each.headers["audit"] for each in records]
    b.take_no_more()
    audit = logbroker_command(b.broker.bootstrap_servers, "audit", "--json", "--lateness-s", "0")
    done = audit("--topic", DELIVERY_LOG, "--topic", EVENTS)
    assert done.returncode == 0, done.stdout + done.stderr
    totals = {(each["tier"], each["topic"]): each for each in json.loads(done.stdout)["totals"]}
    # Events are matched where they were published; both sites and the mirror read deliveries.
    matchers = {(f"rewind-live@{name}", EVENTS) for name in "ab"}
    deliverers = {(f"rewind-delivery@{name}", DELIVERY_LOG) for name in "ab"}
    mirrors = {(f"mirror@{name}", DELIVERY_LOG) for name in "ab"}
    assert totals.keys() == matchers | deliverers | mirrors
    assert {total["status"] for total in totals.values()} == {"complete"}
    assert all(totals[each]["published"] == len(set(logged)) for each in deliverers)
    for name in "ab":
        own = {each.headers["audit"] for each in records if each.headers["origin"] == name}
        assert totals[f"mirror@{name}", DELIVERY_LOG]["published"] == len(own)
    assert sum(totals[each]["published"] for each in matchers) == platform.left_to_rules
    repeats = len(logged) - len(set(logged))
    assert totals["rewind-delivery@b", DELIVERY_LOG]["duplicated"] >= repeats
