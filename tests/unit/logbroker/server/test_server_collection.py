"""Garbage collections do not scan what lives as long as the broker, and connections need none."""

import gc
import ssl
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from logbroker.config import BrokerConfig
from logbroker.server.partition import Partition
from tests.support.http.certificate_authority import CertificateAuthority
from tests.support.kafka.broker_thread import BrokerThread
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.stepped_broker import apply_views, stepped_broker
from tests.support.processes.waiting import until


@pytest.fixture
def collector() -> Iterator[None]:
    """Restores Python's garbage collector."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def scanned() -> list[Partition]:
    """Return the partitions that a collection of all objects scans."""
    return [each for each in gc.get_objects() if isinstance(each, Partition)]


def test_no_collection_scans_a_partition(tmp_path: Path, collector: None) -> None:
    with stepped_broker(BrokerConfig(tmp_path / "log", port=0)) as broker:
        assert len(scanned()) == 1
        broker.collect_rarely()
        broker._registry.create_topic("later", [(0,)] * 2, {})
        apply_views(broker)
        assert scanned() == []


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_closed_connection_is_freed_without_a_collection(
    tmp_path: Path, collector: None, listener: str
) -> None:
    authority = CertificateAuthority(tmp_path)
    files = authority.issue("broker", "127.0.0.1")
    gc.disable()
    with BrokerThread(tmp_path / "log", listener, ssl_certfile=files.both) as broker:
        client = RawConnection(broker.bootstrap(listener))
        if listener != "PLAINTEXT":
            context = ssl.create_default_context(cafile=str(authority.certificate))
            client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        assert client.ask(request, ApiVersionsResponse, 3).api_keys
        (served,) = map(weakref.ref, broker.connections(listener))
        client.socket.close()
        until(lambda: served() is None, "the connection is freed")
