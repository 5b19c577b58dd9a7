"""Schemas in a second data centre: reads from the mirrored log, and failover."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from logbroker.schemas.journal import SCHEMAS_TOPIC
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import ClusterClient, MirrorProcess, until_copied
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.schemas.registry_process import RegistryProcess

pytestmark = pytest.mark.xdist_group("mirror")

OPTIONS = ("--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "1000")
ROUNDS = 5
A_ROUND = 8


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with (
        BrokerProcess(tmp_path / "east", *OPTIONS, name="east") as east,
        BrokerProcess(tmp_path / "west", *OPTIONS, name="west") as west,
    ):
        yield east.serve(), west.serve()


class Sides:
    """Two clusters, and registries and mirrors of theirs."""

    def __init__(
        self, folder: Path, brokers: tuple[BrokerProcess, BrokerProcess], opened: ExitStack
    ) -> None:
        self._servers = {
            side: broker.bootstrap_servers
            for side, broker in zip(("east", "west"), brokers, strict=True)
        }
        self.clients = {side: ClusterClient(each) for side, each in self._servers.items()}
        self._folder = folder
        self._opened = opened

    def registry(self, side: str, *options: str) -> RegistryProcess:
        """One that serves, and ends with the test."""
        name = f"registry-{side}{''.join(options)}"
        made = RegistryProcess(self._folder, self._servers[side], name, *options)
        return self._opened.enter_context(made).serve()

    def mirror(self, source: str, destination: str) -> MirrorProcess:
        """One that serves, and ends with the test."""
        route = self._servers[source], self._servers[destination], SCHEMAS_TOPIC
        folder = self._folder / f"mirror-{source}"
        made = MirrorProcess(folder, *route, "--origin", source)
        return self._opened.enter_context(made).serve()

    def end(self, side: str) -> int:
        return sum(self.clients[side].ends(SCHEMAS_TOPIC))

    def settings(self, side: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, SCHEMAS_TOPIC)
        answers = self.clients[side].admin.describe_configs([resource])[resource].result(DEADLINE_S)
        return {name: entry.value for name, entry in answers.items()}


@pytest.fixture
def sides(tmp_path: Path, brokers: tuple[BrokerProcess, BrokerProcess]) -> Iterator[Sides]:
    with ExitStack() as opened:
        yield Sides(tmp_path, brokers, opened)


def register(registry: RegistryProcess, subject: str, doc: str = "") -> int:
    schema = {"schema": f'{{"type":"fixed","name":"{subject}","size":1,"doc":"{doc}"}}'}
    answer = registry.ask("POST", f"/subjects/{subject}/versions", schema)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def change_much(registry: RegistryProcess, turn: int) -> None:
    """Register, delete, and set a level back and forth: the same changes in each turn."""
    for number in range(A_ROUND):
        register(registry, f"s{turn}x{number}")
    for level in ("FULL", "NONE"):
        registry.ask("PUT", "/config/same", {"compatibility": level}).raise_for_status()
    registry.ask("DELETE", f"/subjects/s{turn}x0").raise_for_status()


def known(registry: RegistryProcess) -> dict[str, Any]:
    """All that a registry tells of its schemas."""
    asked = ["/subjects?deleted=true", "/subjects", "/config/same"]
    answers = {path: registry.ask("GET", path).json() for path in asked}
    for subject in answers[asked[0]]:
        path = f"/subjects/{subject}/versions/latest?deleted=true"
        answers[path] = registry.ask("GET", path).json()
    return answers


def ids(answers: dict[str, Any]) -> list[int]:
    return sorted(
        each["id"] for each in answers.values() if isinstance(each, dict) and "id" in each
    )


def skipped(registry: RegistryProcess) -> dict[str, float]:
    lines = registry.ask("GET", "/metrics").text.splitlines()
    name = "logbroker_registry_passed_over_records"
    shown = (line.removeprefix(name + "{") for line in lines if line.startswith(name + "{"))
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in shown}


def until_known(registry: RegistryProcess, path: str) -> None:
    until(lambda: registry.ask("GET", path).status_code == 200, f"{path} is known")


def test_the_second_data_centre_reads_the_same_schemas_and_takes_over_writing(
    sides: Sides, brokers: tuple[BrokerProcess, BrokerProcess]
) -> None:
    """The mirror is killed while it copies, until records have come twice."""
    east = sides.registry("east")
    for turn in range(ROUNDS):
        change_much(east, turn)
        with sides.mirror("east", "west") as mirror:
            until_copied(sides.clients["west"], SCHEMAS_TOPIC, sides.end("east"))
            mirror.kill()
        if sides.end("west") > sides.end("east"):
            break
    # In JSON within JSON more than a topic takes that has no settings of its own.
    large = register(east, "large", doc='\\"' * 400_000)
    mirror = sides.mirror("east", "west")
    west = sides.registry("west", "--read-only")
    until_known(west, f"/schemas/ids/{large}")
    answers = known(west)
    assert answers == known(east)
    assert ids(answers) == list(range(1, large + 1))
    assert [reason for reason, count in skipped(west).items() if count] == ["repeat"]
    assert sides.clients["west"].partitions(SCHEMAS_TOPIC) == 1
    for name in ("retention.ms", "retention.bytes", "max.message.bytes"):
        assert sides.settings("west")[name] == sides.settings("east")[name]
    clusters = [each.ask("GET", "/v1/metadata/id").json()["scope"] for each in (east, west)]
    assert clusters[0] != clusters[1]
    refused = west.ask("PUT", "/config", {"compatibility": "NONE"})
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42205)
    assert west.ask("GET", "/mode").json() == {"mode": "READONLY"}

    for process in (mirror, east, brokers[0], west):
        process.kill()
    west = sides.registry("west")
    assert known(west) == answers
    assert [register(west, f"later{number}") for number in (1, 2)] == [large + 1, large + 2]

    brokers[0].serve()
    sides.mirror("west", "east")
    east = sides.registry("east", "--read-only")
    until_known(east, f"/schemas/ids/{large + 2}")
    assert known(east) == known(west)
    assert skipped(east) == {"repeat": 0, "late": 0, "branch": 0, "strange": 0}


def test_schemas_of_a_diverged_history_are_skipped_and_reported(
    sides: Sides,
) -> None:
    east = sides.registry("east")
    assert register(east, "shared") == 1
    mirror = sides.mirror("east", "west")
    west = sides.registry("west")
    until_known(west, "/schemas/ids/1")
    mirror.kill()
    assert register(west, "western") == 2
    assert register(east, "eastern") == 2
    assert register(east, "western") == 3
    sides.mirror("east", "west")
    until(lambda: skipped(west)["branch"] == 2, "both are skipped")
    west.until_says("has records of another history, which do not count here: records=")
    assert west.ask("GET", "/subjects").json() == ["shared", "western"]
    assert east.ask("GET", "/subjects").json() == ["eastern", "shared", "western"]
    assert register(west, "eastern") == 3
    assert skipped(west)["late"] == skipped(west)["strange"] == 0
