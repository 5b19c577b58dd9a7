import pytest

from logbroker.consumer import ConsumerConnector
from logbroker.errors import ConfigurationError


def test_all_invalid_settings_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ConsumerConnector(
            "127.0.0.1:2181",
            "",
            "",
            auto_offset_reset="earliest",
            auto_commit_interval_s=0.0,
            session_timeout_s=-1.0,
            rebalance_backoff_s=0.0,
            partition_poll_s=float("nan"),
            client_settings={"group.id": "g", "client.id": "c"},
            audit_tier="",
        )
    wanted = [
        "group_id is empty",
        "bootstrap_servers is empty",
        "auto_offset_reset is 'earliest'; allowed: smallest, largest",
        "auto_commit_interval_s is 0.0; it must be above 0",
        "session_timeout_s is -1.0; it must be above 0",
        "rebalance_backoff_s is 0.0; it must be above 0",
        "partition_poll_s is nan; it must be above 0",
        "client_settings has 'group.id', which is reserved",
        "audit_tier is empty, or has more than 300 bytes",
    ]
    assert str(refused.value) == "; ".join(wanted)


def test_a_malformed_address_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="zookeeper is ''"):
        ConsumerConnector("", "readers", "127.0.0.1:9092")


def test_the_name_of_a_group_has_its_bound() -> None:
    with pytest.raises(ConfigurationError, match="256 characters; maximum 255"):
        ConsumerConnector("127.0.0.1:2181", 256 * "g", "127.0.0.1:9092")
