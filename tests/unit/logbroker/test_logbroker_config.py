"""Topic and broker settings: valid values and error messages."""

from pathlib import Path

import pytest

from logbroker.config import BrokerConfig, ClientAuth, LogConfig
from logbroker.errors import ConfigurationError
from logbroker.listeners import parse_listeners


@pytest.mark.parametrize(
    ("changes", "is_continuous"),
    [({}, True), ({"flush_ms": 100}, False), ({"flush_messages": 5}, False)],
)
def test_flushing_is_continuous_until_a_threshold_is_set(
    changes: dict[str, int], is_continuous: bool
) -> None:
    assert LogConfig(**changes).flushes_continuously is is_continuous  # type: ignore[arg-type]


def test_all_problems_of_a_broker_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        BrokerConfig(data_dir=tmp_path, port=65_536, flush_threads=0, request_bytes_max=4_096)

    assert str(refused.value).splitlines() == [
        "port is 65536; allowed is 0 to 65535",
        "flush_threads is 0; allowed is 1 to 64",
        "request_bytes_max is 4096; it must hold one batch of max.message.bytes (1048588)",
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_broker_on_every_address_needs_a_name_for_its_clients(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="advertised_host is missing"):
        BrokerConfig(data_dir=tmp_path, host=host, insecure=True)

    config = BrokerConfig(
        data_dir=tmp_path, host=host, advertised_host="log.example", insecure=True
    )
    assert config.host == host


@pytest.mark.parametrize(
    ("listeners", "client_auth", "is_refused"),
    [
        ("PLAINTEXT://127.0.0.1:1,SSL://[::1]:2", "none", False),
        ("PLAINTEXT://localhost:1", "none", False),
        ("PLAINTEXT://10.0.0.5:1", "none", True),
        ("PLAINTEXT://log.example:1", "none", True),
        ("SSL://10.0.0.5:1", "none", True),
        ("SSL://10.0.0.5:1", "requested", True),
        ("SSL://10.0.0.5:1", "required", False),
        ("SASL_SSL://10.0.0.5:1,SASL_PLAINTEXT://10.0.0.5:2", "none", False),
        ("SASL_SSL://10.0.0.5:1,PLAINTEXT://10.0.0.5:2", "required", True),
    ],
)
def test_other_machines_must_authenticate_unless_the_network_is_private(
    tmp_path: Path, listeners: str, client_auth: ClientAuth, is_refused: bool
) -> None:
    def config(*, insecure: bool) -> BrokerConfig:
        return BrokerConfig(
            tmp_path,
            listeners=parse_listeners(listeners),
            ssl_certfile=tmp_path / "certificate.pem",
            ssl_ca_file=tmp_path / "ca.pem",
            ssl_client_auth=client_auth,
            insecure=insecure,
        )

    assert config(insecure=True).served_listeners == parse_listeners(listeners)
    if is_refused:
        with pytest.raises(ConfigurationError, match="without authentication: use SASL_SSL"):
            config(insecure=False)
    else:
        config(insecure=False)
