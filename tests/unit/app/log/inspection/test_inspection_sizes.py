"""Sizes where they cannot be asked for: a gap, and no secret in it."""

from app.config import Settings
from app.log.inspection.figures import Gaps
from app.log.inspection.sizes import LogSizeReader


def test_an_unsupported_sasl_mechanism_leaves_a_gap() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.client.secret": "hunter2",
    }
    settings = Settings(bootstrap_servers="127.0.0.1:1", kafka_properties=properties)
    gaps = Gaps()
    assert LogSizeReader(settings, 1.0).read([("clicks", 0)], gaps) == {}
    (gap,) = gaps.all()
    assert gap.figure == "bytes"
    assert gap.reason.startswith("sasl.mechanisms is 'OAUTHBEARER'; allowed: PLAIN, SCRAM")
    assert "hunter2" not in gap.reason
    assert "\n" not in gap.reason


def test_brokers_that_are_away_leave_a_gap(refused_address: str) -> None:
    gaps = Gaps()
    reader = LogSizeReader(Settings(bootstrap_servers=refused_address), 0.1)
    assert reader.read([("clicks", 0)], gaps) == {}
    assert [gap.figure for gap in gaps.all()] == ["bytes"]


def test_no_broker_is_asked_about_no_partitions() -> None:
    gaps = Gaps()
    assert LogSizeReader(Settings(bootstrap_servers="nowhere"), 1.0).read([], gaps) == {}
    assert gaps.all() == ()
