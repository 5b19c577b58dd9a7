"""The request of a load."""

import pytest

from logbroker.client.raw import RawCluster
from spark_jobs.jobs.load import LoadRequest
from spark_jobs.offsets.limits import Subscribed


@pytest.mark.parametrize(
    "settings",
    [{}, *({"isolation.level": each} for each in ("read_uncommitted", "READ_COMMITTED"))],
)
def test_load_and_client_agree_on_the_isolation_level(settings: dict[str, str]) -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "secret-1", **settings}
    request = LoadRequest(properties, Subscribed(("orders",)), "/table")
    with RawCluster(properties) as cluster:
        assert cluster.is_committed(None) == request.read_committed
    assert request.read_committed == ("READ_COMMITTED" in settings.values())
    assert "secret-1" not in repr(request)
