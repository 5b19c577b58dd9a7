"""Every command of README.md does what it says, typed as it stands there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from app.domain.windows import format_time, parse_time
from app.log.topics import ensure_topics
from tests.support.database.mariadb import MariaDbServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ShellProcess, require_program
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.spark.spark_session import spark_environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = Path(sys.executable).parent
EVENTS = 50
MINUTE_MS = 60_000
SPARK_S = 400.0
"""How long a job may take, of which Spark's start is most."""


def commands() -> list[str]:
    """The commands of all `sh` blocks: lines joined, comments gone."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    bare = (re.sub(r"(^|\s)#.*", "", line) for line in lines)
    return [" ".join(line.split()) for line in bare if line.strip()]


def command(start: str) -> str:
    """The one command of the README that begins so."""
    (found,) = [each for each in commands() if each.startswith(start)]
    return found


class Terminal:
    """A shell in a fresh folder, with the programs of this environment in its path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("REWIND_", "LOGBROKER_"))
        }
        path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])
        self.environment = clean | {"PATH": path}
        self.folder = folder / "home"
        self.folder.mkdir()

    def run(self, line: str, deadline_s: float = DEADLINE_S) -> "subprocess.CompletedProcess[str]":
        """Type a command and wait for it; it must end with 0."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done

    def serve(self, line: str, ready: str) -> ShellProcess:
        """Start a command that keeps running and wait for a line that begins with `ready`."""
        name = "-".join(line.split()[:4]).replace("/", ".")
        output = self._folder / f"{name}.log"
        server = ShellProcess(line.removesuffix("&"), self.folder, output, self.environment)
        self._stack.enter_context(server)
        server.start(ready)
        return server

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def recipe(target: str) -> list[str]:
    """What `make TARGET` would run once all is installed, with this environment's programs."""
    require_program("make", "make")
    completed = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [
        line
        for line in completed.stdout.splitlines()
        if "pip install" not in line and "setup.py" not in line
    ]
    return [line.replace(".venv/bin/", f"{PROGRAMS}/") for line in lines if "/bin/" in line]


def test_make_demo(terminal: Terminal) -> None:
    (line,) = recipe("demo")
    completed = terminal.run(f"{line} --events 1200")
    assert "missing 0, duplicate 0" in completed.stderr
    assert "curl" in completed.stdout


def test_make_test() -> None:
    # The command that runs this very test.
    assert recipe("test")[-1].split()[1:3] == ["-m", "pytest"]


def test_make_check() -> None:
    programs = [Path(line.split()[0]) for line in recipe("check")]
    assert [program.name for program in programs] == [
        *("ruff", "ruff", "mypy", "lint-imports", "python")
    ]
    assert all(os.access(program, os.X_OK) for program in programs)


def test_make_bench() -> None:
    (line,) = recipe("bench")
    assert line.endswith("python -m benchmarks")
    assert (ROOT / "benchmarks" / "__main__.py").exists()


def test_make_docs() -> None:
    """`tests/integration/test_docs_site.py` builds the site."""
    (line,) = recipe("docs")
    assert line.endswith("mkdocs build")


def test_installing_the_broker_alone() -> None:
    """`tests/integration/test_light_installation.py` installs it and starts a broker."""
    assert command("pip install") == "pip install ."


def test_activating_the_environment(terminal: Terminal) -> None:
    activate = command(". .venv").replace(".venv", sys.prefix)
    terminal.environment["PATH"] = os.environ["PATH"]
    found = terminal.run(f"{activate} && command -v rewind && command -v logbroker").stdout
    assert found.splitlines() == [f"{PROGRAMS}/rewind", f"{PROGRAMS}/logbroker"]


def test_using_it(terminal: Terminal) -> None:
    require_program("curl", "curl")
    port, broker_port, receiver_port = free_port(), free_port(), free_port()
    # As the README tells who wants to try it with a receiver on this machine.
    assert command("REWIND_ALLOW_PRIVATE_TARGETS=true").endswith(" make up")
    terminal.environment |= {
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_PORT": str(port),
        "REWIND_BROKER_PORT": str(broker_port),
        "REWIND_API_URL": f"http://127.0.0.1:{port}",
    }
    (line,) = recipe("up")
    service = terminal.serve(line, "rewind ready on ")
    answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE_S)
    assert answer.status_code == 200
    assert httpx.get(f"http://127.0.0.1:{port}/openapi.json", timeout=DEADLINE_S).status_code == 200

    heard = terminal.folder / "heard.txt"
    listen = command("rewind listen").replace("9000", str(receiver_port)) + f" >> {heard}"
    listener = terminal.serve(listen, "rewind listen ready on ")
    line = command("curl").replace("8000", str(port)).replace("9000", str(receiver_port))
    webhook = json.loads(terminal.run(line).stdout)
    assert (webhook["id"][:3], webhook["status"]) == ("wh_", "ENABLED")
    assert webhook["secret"].startswith("whsec_")

    start_ms = time.time_ns() // 1_000_000 - 2 * EVENTS * 1000 - MINUTE_MS
    (first_event,) = re.findall(r"```json\n(.*)\n```\n\n```sh\nrewind publish", README)
    first_events = f"{first_event}\n{events(range(EVENTS), start_ms)}"
    (terminal.folder / "events.jsonl").write_text(first_events)
    publish = command("rewind publish events.jsonl")
    assert terminal.run(publish).stdout.split() == [str(EVENTS + 1)]
    until(lambda: "evt_first" in heard.read_text().split(), "the README's event came")
    until(lambda: missing(range(EVENTS), heard) == [], "all events came")
    assert listener.stop(signal.SIGINT) == 0

    missed = range(EVENTS, 2 * EVENTS)
    (terminal.folder / "missed.jsonl").write_text(events(missed, start_ms))
    assert terminal.run(command("rewind publish missed.jsonl")).stdout.split() == [str(EVENTS)]
    listener = terminal.serve(listen, "rewind listen ready on ")
    line = command("rewind replay").replace("wh_...", webhook["id"])
    first, last = (format_time(start_ms + 1000 * seconds) for seconds in (0, 2 * EVENTS))
    line = re.sub(r"--from \S+ --to \S+", f"--from {first} --to {last}", line)
    replayed = terminal.run(line)
    job = json.loads(replayed.stdout)
    assert (job["state"], job["counts"]["failed"]) == ("COMPLETED", 0)
    assert "is COMPLETED" in replayed.stderr
    until(lambda: missing(missed, heard) == [], "all that was missed came")

    terminal.run(command("rewind accounts create"))
    terminal.run(command("rewind grants put"))
    key = terminal.run(command("rewind keys create")).stdout.strip()
    own = httpx.get(
        f"http://127.0.0.1:{port}/webhooks",
        headers={"authorization": f"Bearer {key}"},
        timeout=DEADLINE_S,
    )
    assert (own.status_code, own.json()["items"]) == (200, [])

    assert listener.stop(signal.SIGINT) == 0
    assert service.stop(signal.SIGINT) == 0
    assert "rewind stopped" in service.output
    kept = {path.name for path in (terminal.folder / ".rewind").iterdir()}
    assert {"log", "operator.key", "rewind.db"} <= kept


def missing(numbers: range, heard: Path) -> list[int]:
    """Return the numbers of the events that the receiver has not printed."""
    words = heard.read_text().split()
    return [number for number in numbers if f"evt_{number}" not in words]


def events(numbers: range, start_ms: int) -> str:
    """A file of events as the README describes it, one a second."""
    return "".join(
        json.dumps(
            {
                "id": f"evt_{number}",
                "type": "follow.created",
                "time": format_time(start_ms + 1000 * number),
                "data": {"userId": str(number)},
            }
        )
        + "\n"
        for number in numbers
    )


def test_the_broker_alone(terminal: Terminal) -> None:
    address = f"127.0.0.1:{free_port()}"
    line = command("logbroker serve --listen").replace("127.0.0.1:9092", address)
    broker = terminal.serve(line, "logbroker ready on ")
    terminal.environment["LOGBROKER_BOOTSTRAP_SERVERS"] = address

    terminal.run(command("logbroker topics create"))
    assert terminal.run(command("logbroker topics list")).stdout.split() == ["clicks"]
    described = terminal.run(command("logbroker topics describe")).stdout
    assert "partitions=4 retention.ms=86400000" in described

    producer = Producer({"bootstrap.servers": address})
    producer.produce("clicks", b"a click", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    dumped = terminal.run(command("logbroker dump")).stdout
    assert "records=1 next_offset=1 problems=0" in dumped
    assert broker.stop(signal.SIGINT) == 0


def test_many_brokers_and_groups(terminal: Terminal, zookeeper: SharedZooKeeper) -> None:
    chroot = zookeeper.fresh_chroot()
    addresses = {f"127.0.0.1:{port}": f"127.0.0.1:{free_port()}" for port in (9092, 9093)}
    brokers = [
        terminal.serve(
            _replaced(command(start), addresses | {"127.0.0.1:2181/logs": chroot}),
            "logbroker ready on ",
        )
        for start in ("logbroker serve --broker-id 1", "logbroker serve --broker-id 2")
    ]
    bootstrap = ",".join(addresses.values())
    terminal.environment["LOGBROKER_BOOTSTRAP_SERVERS"] = bootstrap
    terminal.run(command("logbroker topics create"))
    described = terminal.run("logbroker topics describe clicks --json").stdout
    leaders = [each["leader"] for each in json.loads(described)[0]["partitions"]]
    assert sorted(leaders) == [1, 1, 2, 2]

    settings = {"bootstrap.servers": bootstrap, "group.id": "readers"}
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[TopicPartition("clicks", 0, 5)], asynchronous=False)
    assert "readers" in terminal.run(command("logbroker groups list")).stdout
    assert "clicks" in terminal.run(command("logbroker groups describe")).stdout
    terminal.run(command("logbroker groups reset"))
    (place,) = json.loads(terminal.run("logbroker groups describe readers --json").stdout)[0][
        "partitions"
    ]
    assert place["committed_offset"] == 0
    for broker in brokers:
        assert broker.stop(signal.SIGINT) == 0


def _replaced(line: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        line = line.replace(old, new)
    return line


@pytest.mark.long
def test_beyond_one_machine(terminal: Terminal, mariadb: MariaDbServer, tmp_path: Path) -> None:
    port = free_port()
    terminal.environment["REWIND_PORT"] = str(port)
    database = mariadb.create_database()
    with BrokerProcess(tmp_path / "log").serve() as kafka:

        def filled_in(start: str) -> str:
            line = command(start)
            assert "mysql+pymysql://USER:PASSWORD@HOST/rewind" in line
            line = line.replace("mysql+pymysql://USER:PASSWORD@HOST/rewind", database)
            return line.replace("KAFKA:9092", kafka.bootstrap_servers)

        terminal.run(command("rewind secrets new-key"))
        export = command("export REWIND_SECRET_KEY_FILE")
        file = terminal.run(f"{export}; printenv REWIND_SECRET_KEY_FILE").stdout.strip()
        terminal.environment["REWIND_SECRET_KEY_FILE"] = file
        terminal.run(filled_in("rewind migrate"))
        api = terminal.serve(filled_in("rewind api"), "rewind api ready on ")
        worker = terminal.serve(filled_in("rewind worker"), "rewind worker ready")
        live = terminal.serve(filled_in("rewind live"), "rewind live ready")
        until(
            lambda: (
                httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE_S).status_code == 200
            ),
            "readiness",
        )
        assert live.stop() == 0
        assert worker.stop() == 0
        assert api.stop() == 0


@pytest.mark.long
def test_two_data_centres_audit_and_avro(terminal: Terminal, tmp_path: Path) -> None:
    ports = {str(port): str(free_port()) for port in (9092, 9192, 8081)}
    terminal.environment |= {"REWIND_PORT": str(free_port()), "REWIND_BROKER_PORT": ports["9092"]}
    address = f"127.0.0.1:{ports['9092']}"
    line = command("rewind up")
    service = terminal.serve(_replaced(line, ports), "rewind ready on ")
    registry = terminal.serve(
        _replaced(command("logbroker registry"), ports), "logbroker registry ready on "
    )
    subjects = httpx.get(f"http://127.0.0.1:{ports['8081']}/subjects", timeout=DEADLINE_S)
    assert (subjects.status_code, subjects.json()) == (200, [])

    with BrokerProcess(tmp_path / "west", port=int(ports["9192"])).serve() as west:
        mirrors = [
            terminal.serve(_replaced(command(start), ports), "logbroker mirror ready")
            for start in (
                "logbroker mirror --from 127.0.0.1:9092",
                "logbroker mirror --from 127.0.0.1:9192",
            )
        ]
        producer = Producer({"bootstrap.servers": address})
        producer.produce("delivery_log", b"{}", b"wh_1", partition=3, headers=[("origin", b"east")])
        assert producer.flush(DEADLINE_S) == 0
        with closing(Consumer({"bootstrap.servers": west.bootstrap_servers, "group.id": "x"})) as c:
            c.assign([TopicPartition("delivery_log", 3, 0)])
            until(lambda: (each := c.poll(0.1)) and each.key() == b"wh_1", "the record is in west")
        for mirror in mirrors:
            assert mirror.stop(signal.SIGINT) == 0

    create = command("logbroker topics create")
    terminal.run(f"{create} --bootstrap-servers {address}")
    (code,) = [each for each in python_blocks() if "AuditedProducer" in each]
    exec(_replaced(code, ports), {})
    completed = terminal.run(_replaced(command("logbroker audit"), ports) + " --all")
    assert "clicks" in completed.stdout
    assert registry.stop(signal.SIGINT) == 0
    assert service.stop(signal.SIGINT) == 0


def test_make_spark() -> None:
    require_program("make", "make")
    command = ["make", "--dry-run", "--always-make", "spark"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--editable '.[spark]'" in completed


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_the_nightly_pipeline(
    terminal: Terminal,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.environment |= spark_environment(tmp_path)
    # A date that passes: retention must not delete these records.
    noon_ms = parse_time("2026-11-21T12:00:00Z")
    with BrokerProcess(tmp_path / "log").serve() as broker:
        address = {"127.0.0.1:9092": broker.bootstrap_servers}
        ensure_topics(broker.bootstrap_servers, partitions=2, retention_ms=2**60, is_audited=True)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(
            "delivery_log",
            b"{}",
            b"wh_1",
            timestamp=noon_ms,
            headers=[("event-id", b"evt_1"), ("event-type", b"follow.created")],
        )
        for _ in range(3):
            producer.produce("events", b"{}", timestamp=noon_ms)
        assert producer.flush(DEADLINE_S) == 0
        lines = [
            _replaced(command(start), address)
            for start in ("rewind-jobs load", "rewind-jobs delivery-report")
        ]
        loaded, reported = (terminal.run(line, SPARK_S).stdout for line in lines)
        (code,) = [each for each in python_blocks() if "SparkSession" in each]
        # In the session that is there; the commands have shown that one begins and ends.
        exec(_replaced(code, address), {})
    counted = capsys.readouterr().out
    assert "is at version 1" in loaded
    assert "1 events for 1 webhooks" in reported
    assert (terminal.folder / "report/index.html").exists()
    assert sum(map(int, re.findall(r"\|\s*\d+\|\s*(\d+)\|", counted))) == 3


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


RUN_BY: dict[str, Callable[..., None]] = {
    "make demo": test_make_demo,
    "make test": test_make_test,
    "REWIND_ALLOW_PRIVATE_TARGETS=true make up": test_using_it,
    ". .venv/bin/activate": test_activating_the_environment,
    "rewind listen": test_using_it,
    "curl": test_using_it,
    "rewind publish events.jsonl": test_using_it,
    "rewind publish missed.jsonl": test_using_it,
    "rewind replay": test_using_it,
    "rewind accounts create": test_using_it,
    "rewind grants put": test_using_it,
    "rewind keys create": test_using_it,
    "pip install .": test_installing_the_broker_alone,
    "logbroker serve --listen": test_the_broker_alone,
    "logbroker topics create": test_the_broker_alone,
    "logbroker topics list": test_the_broker_alone,
    "logbroker topics describe": test_the_broker_alone,
    "logbroker dump": test_the_broker_alone,
    "logbroker serve --broker-id 1": test_many_brokers_and_groups,
    "logbroker serve --broker-id 2": test_many_brokers_and_groups,
    "logbroker groups list": test_many_brokers_and_groups,
    "logbroker groups describe": test_many_brokers_and_groups,
    "logbroker groups reset": test_many_brokers_and_groups,
    "logbroker mirror --from 127.0.0.1:9092": test_two_data_centres_audit_and_avro,
    "logbroker mirror --from 127.0.0.1:9192": test_two_data_centres_audit_and_avro,
    "logbroker audit": test_two_data_centres_audit_and_avro,
    "logbroker registry": test_two_data_centres_audit_and_avro,
    "rewind up": test_two_data_centres_audit_and_avro,
    "rewind secrets new-key": test_beyond_one_machine,
    "export REWIND_SECRET_KEY_FILE": test_beyond_one_machine,
    "rewind migrate": test_beyond_one_machine,
    "rewind api": test_beyond_one_machine,
    "rewind worker": test_beyond_one_machine,
    "rewind live": test_beyond_one_machine,
    "make spark": test_make_spark,
    "rewind-jobs load": test_the_nightly_pipeline,
    "rewind-jobs delivery-report": test_the_nightly_pipeline,
    "make check": test_make_check,
    "make bench": test_make_bench,
    "make docs": test_make_docs,
}
"""How each command of the README begins, and the test that runs it."""


def test_each_command_is_run() -> None:
    for line in commands():
        matching = [start for start in RUN_BY if line.startswith(start)]
        assert len(matching) == 1, f"no test runs {line!r}"
    assert len(commands()) == len(RUN_BY)


def test_each_link_leads_to_a_file() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README)
    here = [target for target in targets if "://" not in target]
    assert here
    assert [target for target in here if not (ROOT / target).exists()] == []
