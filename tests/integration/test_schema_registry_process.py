"""`logbroker registry` as a process: started again, beside another, without its log."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.http.certificates import self_signed
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.schemas.registry_process import RegistryProcess

pytestmark = pytest.mark.long


@pytest.fixture
def one(tmp_path: Path, broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with RegistryProcess(tmp_path, broker.bootstrap_servers, "one") as process:
        yield process.serve()


@pytest.fixture
def two(tmp_path: Path, one: RegistryProcess, broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with RegistryProcess(tmp_path, broker.bootstrap_servers, "two") as process:
        yield process.serve()


def schema(number: int) -> dict[str, str]:
    fields = [{"name": f"f{number}", "type": "int", "default": 0}]
    document = {"type": "record", "name": "R", "fields": fields}
    return {"schema": json.dumps(document, separators=(",", ":"))}


def register(registry: RegistryProcess, subject: str, number: int) -> int:
    answer = registry.ask("POST", f"/subjects/{subject}/versions", schema(number))
    assert answer.status_code == 200, answer.text
    schema_id = answer.json()["id"]
    assert isinstance(schema_id, int)
    return schema_id


def test_a_registry_that_starts_again_knows_everything(one: RegistryProcess) -> None:
    ids = [register(one, "s", number) for number in range(3)]
    one.ask("PUT", "/config/s", {"compatibility": "FULL"})
    one.ask("DELETE", "/subjects/s/versions/2")
    before = [one.ask("GET", f"/schemas/ids/{each}").json() for each in ids]
    one.kill()
    one.serve()
    assert ids == [1, 2, 3]
    assert [one.ask("GET", f"/schemas/ids/{each}").json() for each in ids] == before
    assert one.ask("GET", "/subjects/s/versions").json() == [1, 3]
    assert one.ask("GET", "/subjects/s/versions?deletedOnly=true").json() == [2]
    assert one.ask("GET", "/config/s").json() == {"compatibilityLevel": "FULL"}
    assert register(one, "s", 0) == 1
    assert register(one, "other", 9) == 4


def test_two_registries_at_once_give_each_id_once(
    one: RegistryProcess, two: RegistryProcess
) -> None:
    def register_all(registry: RegistryProcess, name: str, first: int) -> dict[int, str]:
        start.wait()
        return {
            register(registry, f"{name}-{number}", first + number): f"{name}-{number}"
            for number in range(15)
        }

    start = threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(register_all, registry, name, first)
            for registry, name, first in ((one, "one", 0), (two, "two", 100))
        ]
        mine, others = (each.result() for each in asked)
    assert sorted([*mine, *others]) == list(range(1, 31))
    for registry in (one, two):
        for schema_id, subject in {**mine, **others}.items():
            # The other one may be a moment behind with subjects; never with ids it is asked for.
            path = f"/schemas/ids/{schema_id}/subjects"
            assert registry.ask("GET", path).json() == [subject]


def test_an_id_given_by_one_registry_is_known_to_the_other_at_once(
    one: RegistryProcess, two: RegistryProcess
) -> None:
    for number in range(10):
        schema_id = register(one, "s", number)
        answer = two.ask("GET", f"/schemas/ids/{schema_id}")
        assert (answer.status_code, answer.json()) == (200, schema(number))


def test_a_registry_waits_for_its_log(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "log") as broker,
        RegistryProcess(tmp_path, broker.bootstrap_servers) as registry,
    ):
        registry.launch()
        registry.until_says("waiting for the log")
        until(lambda: is_healthy(registry), "it listens")
        assert registry.ask("GET", "/readyz").status_code == 503
        refusal = registry.ask("GET", "/subjects")
        assert (refusal.status_code, refusal.json()["error_code"]) == (500, 50001)
        assert "logbroker_registry_up 0.0" in registry.ask("GET", "/metrics").text
        broker.serve()
        registry.until_says("logbroker registry ready on ")
        assert registry.ask("GET", "/readyz").status_code == 200
        assert registry.ask("GET", "/subjects").json() == []
        assert "logbroker_registry_up 1.0" in registry.ask("GET", "/metrics").text
        assert register(registry, "s", 1) == 1


def is_healthy(registry: RegistryProcess) -> bool:
    try:
        return registry.ask("GET", "/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_lookups_work_without_the_log(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "log") as broker,
        RegistryProcess(tmp_path, broker.serve().bootstrap_servers) as registry,
    ):
        registry.serve()
        assert register(registry, "s", 1) == 1
        broker.kill()
        assert registry.ask("GET", "/schemas/ids/1").json() == schema(1)
        assert registry.ask("GET", "/subjects/s/versions/latest").json()["id"] == 1
        assert registry.ask("GET", "/readyz").status_code == 503
        refused = registry.ask("POST", "/subjects/s/versions", schema(2))
        assert (refused.status_code, refused.json()["error_code"] // 10) == (500, 5000)
        broker.serve()
        until(lambda: registry.ask("GET", "/readyz").status_code == 200, "it is ready again")
        assert register(registry, "s", 2) == 2


def test_a_registry_stops_cleanly_by_signal_and_by_the_end_of_its_input(
    tmp_path: Path, broker: BrokerProcess, one: RegistryProcess
) -> None:
    assert one.stop() == 0
    two = RegistryProcess(tmp_path, broker.bootstrap_servers, "two", "--stop-on-stdin-close")
    with two:
        two.serve()
        two.close_stdin()
        assert two.wait() == 0


def test_users_and_certificates_of_clients_over_tls(tmp_path: Path, broker: BrokerProcess) -> None:
    server, client = tmp_path / "server", tmp_path / "client"
    server.mkdir()
    client.mkdir()
    own, others = self_signed(server, "127.0.0.1"), self_signed(client, "client.example")
    users = tmp_path / "users"
    users.write_text("writer: one, write\nreader: two, read\n")
    options = (
        *("--users-file", str(users), "--tls-certfile", str(own.certificate)),
        *("--tls-keyfile", str(own.key), "--tls-client-ca-file", str(others.certificate)),
    )
    trust = ssl.create_default_context(cafile=str(own.certificate))
    with RegistryProcess(tmp_path, broker.bootstrap_servers, "tls", *options) as registry:
        registry.serve()
        url = registry.url.replace("http://", "https://")
        with (
            pytest.raises(httpx.TransportError),
            httpx.Client(verify=trust, timeout=DEADLINE_S) as without_certificate,
        ):
            without_certificate.get(f"{url}/subjects")
        trust.load_cert_chain(others.certificate, others.key)
        with httpx.Client(verify=trust, base_url=url, timeout=DEADLINE_S) as https:
            assert https.get("/subjects").status_code == 401
            assert https.get("/metrics").status_code == 401
            assert https.get("/readyz").status_code == 200
            path, reader = "/subjects/s/versions", ("reader", "two")
            assert https.post(path, json=schema(1), auth=reader).status_code == 403
            assert https.post(path, json=schema(1), auth=("writer", "one")).status_code == 200
            assert https.get("/subjects", auth=reader).json() == ["s"]
            assert https.get("/subjects", headers={"host": "evil.example"}).status_code == 421
    assert "path=/subjects/s/versions status=200 client=127.0.0.1 user=writer" in registry.output


def test_a_registry_for_everybody_beyond_loopback_is_refused(broker: BrokerProcess) -> None:
    run = logbroker_command(broker.bootstrap_servers, "registry")("--listen", "0.0.0.0:0")
    assert run.returncode == 2
    assert "or allow it with --insecure" in run.stderr


def test_an_address_that_is_taken_is_refused_in_a_line(broker: BrokerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run = logbroker_command(broker.bootstrap_servers, "registry")("--listen", address)
    assert run.returncode == 1
    assert run.stderr.startswith(f"logbroker: cannot listen on {address}: ")


def test_a_topic_that_would_forget_schemas_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve().make_topic("_schemas", 1, retention_ms="1000")
        run = logbroker_command(broker.bootstrap_servers, "registry")("--listen", "127.0.0.1:0")
    assert run.returncode == 1
    assert "topic '_schemas' would delete schemas: retention.ms is 1000" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_client_config_is_heard(tmp_path: Path, broker: BrokerProcess) -> None:
    config = tmp_path / "client.properties"
    config.write_text("no.such.property=secret\n")
    run = logbroker_command(broker.bootstrap_servers, "registry")(
        "--listen", "127.0.0.1:0", "--client-config", str(config)
    )
    assert run.returncode == 1
    assert "no.such.property" in run.stderr
    assert "secret" not in run.stderr
    config.write_text("# TLS, at a broker that has none\nsecurity.protocol=ssl\n")
    options = ("--client-config", str(config))
    with RegistryProcess(tmp_path, broker.bootstrap_servers, "tls", *options) as registry:
        registry.launch()
        registry.until_says("waiting for the log")
        assert registry.stop() == 0
