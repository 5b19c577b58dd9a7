"""A browser and a complete service, shared by the tests of the console (one xdist group)."""

from collections.abc import Iterator

import pytest

from tests.support.database.mariadb import MariaDbServer
from tests.support.http.browser import Chromium
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.service.console_service import ConsoleScene


@pytest.fixture(scope="package")
def chromium() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="package")
def scene(
    chromium: Chromium, mariadb: MariaDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleScene]:
    """Yield a running service. Requires the browser, which may be missing."""
    folder = tmp_path_factory.mktemp("console")
    # Groups have one member, so there is no reason to wait for more.
    options = ("--stop-on-stdin-close", "--group-initial-rebalance-delay-ms", "0")
    with BrokerProcess(folder / "log", *options) as broker:
        broker.serve()
        with ConsoleScene(folder, broker, mariadb.create_database()) as scene:
            scene.serve()
            yield scene
