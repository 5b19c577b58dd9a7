"""Metrics for this machine, and for clients with the token."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from logbroker import json_log
from logbroker.metrics_http import CONNECTIONS_MAX, MetricsAccess, serve_metrics
from tests.support.processes.waiting import DEADLINE_S, until


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


def test_lines_of_clients_without_a_readable_token_are_limited(
    token_file: Path,
    limited_client_loggers: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_log, "REPETITIONS_MAX", 2)
    token_file.unlink()
    access = MetricsAccess(token_file)
    for _ in range(5):
        assert not access.admits("10.0.0.1", "Bearer s3cret")
    assert caplog.text.count("token not read") == 2


@contextmanager
def served(host: str, access: MetricsAccess) -> Iterator[int]:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    with closing_server(host, access, registry) as port:
        yield port


@contextmanager
def closing_server(host: str, access: MetricsAccess, registry: CollectorRegistry) -> Iterator[int]:
    server = serve_metrics(registry, host, 0, access)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_this_machine_needs_no_token(host: str) -> None:
    with served(host, MetricsAccess()) as port:
        name = f"[{host}]" if ":" in host else host
        answer = httpx.get(
            f"http://{name}:{port}/metrics",
            timeout=DEADLINE_S,
            trust_env=False,
            verify=False,  # no TLS
        )
    assert answer.status_code == 200
    assert "\nthings_total 3.0\n" in answer.text


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.0.1"])
def test_addresses_of_this_machine_are_admitted(client: str) -> None:
    assert MetricsAccess().admits(client, "")


@pytest.mark.parametrize("client", ["10.0.0.5", "2001:db8::1", "::ffff:10.0.0.5", "", "fe80::1%0"])
def test_other_machines_need_the_token(token_file: Path, client: str) -> None:
    access = MetricsAccess(token_file)
    assert access.admits(client, "Bearer s3cret")
    assert access.admits(client, "bearer  s3cret ")
    for wrong in ("", "Bearer", "Bearer ", "Bearer s3cre", "Basic s3cret", "s3cret", "Bearer \xff"):
        assert not access.admits(client, wrong), wrong
    assert not MetricsAccess().admits(client, "Bearer ")
    assert MetricsAccess(is_open=True).admits(client, "")


def test_a_token_can_be_replaced_and_an_empty_one_admits_no_client(token_file: Path) -> None:
    access = MetricsAccess.of(str(token_file), is_open=False)
    token_file.write_text("new")
    assert access.admits("10.0.0.5", "Bearer new")
    assert not access.admits("10.0.0.5", "Bearer s3cret")
    token_file.write_text("\n")
    assert not access.admits("10.0.0.5", "Bearer ")
    token_file.unlink()
    assert not access.admits("10.0.0.5", "Bearer new")
    assert MetricsAccess.of("", is_open=False) == MetricsAccess()


def own_address() -> str:
    """An address of this machine that is not one of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        address: str = probe.getsockname()[0]
    return address


def test_a_request_from_elsewhere_without_the_token_gets_401(token_file: Path) -> None:
    address = own_address()
    with served("0.0.0.0", MetricsAccess(token_file)) as port:
        url = f"http://{address}:{port}/metrics"
        with httpx.Client(timeout=DEADLINE_S, trust_env=False, verify=False) as client:
            refused = client.get(url)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "things" not in refused.text
            accepted = client.get(url, headers={"authorization": "Bearer s3cret"})
            assert "\nthings_total 3.0\n" in accepted.text


def test_connections_above_the_limit_are_closed_and_others_answered_later() -> None:
    with served("127.0.0.1", MetricsAccess()) as port:
        with ExitStack() as connections:
            silent = [
                connections.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
                for _ in range(CONNECTIONS_MAX + 1)
            ]
            silent[-1].settimeout(DEADLINE_S)
            assert silent[-1].recv(1) == b""
        url = f"http://127.0.0.1:{port}/metrics"
        until(lambda: is_answered(url), "threads are free again")


def is_answered(url: str) -> bool:
    try:
        return httpx.get(url, timeout=DEADLINE_S, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False


def test_readiness_needs_no_token_and_names_the_problems() -> None:
    problems: list[str] = []
    server = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, MetricsAccess(), lambda: problems)
    url = f"http://127.0.0.1:{server.server_port}/readyz"
    try:
        ready = httpx.get(url, timeout=DEADLINE_S, trust_env=False, verify=False)
        assert (ready.status_code, ready.json()) == (200, {"status": "ok"})
        problems.append("orders-3 has made no progress for a minute")
        stalled = httpx.get(url, timeout=DEADLINE_S, trust_env=False, verify=False)
        assert (stalled.status_code, stalled.json()["problems"]) == (503, problems)
    finally:
        server.shutdown()
        server.server_close()
