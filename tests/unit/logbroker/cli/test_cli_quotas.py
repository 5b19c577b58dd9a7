"""`logbroker quotas` against a broker in the test process."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from logbroker.cli import main
from tests.support.kafka.quota_broker import LIMITED, QuotaBroker
from tests.support.kafka.raw_quotas import describe_quotas, described


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaBroker]:
    with QuotaBroker(tmp_path_factory.mktemp("quotas")) as broker:
        yield broker


def run(broker: QuotaBroker, *arguments: str) -> Result:
    servers = ("--bootstrap-servers", broker.bootstrap(LIMITED))
    return CliRunner().invoke(main, ["quotas", *arguments, *servers])


def test_quotas_are_set_listed_and_removed(broker: QuotaBroker) -> None:
    done = run(
        broker,
        *("set", "--user", "alice", "--default-client-id"),
        *("--producer-byte-rate", "1048576", "--request-percentage", "12.5"),
    )
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "set 2 quotas of user alice and client id <default>\n"
    done = run(broker, "set", "--client-id", "app", "--controller-mutation-rate", "0.5")
    assert done.exit_code == 0
    done = run(broker, "set", "--ip", "192.0.2.7", "--connection-creation-rate", "20")
    assert done.stderr == "set 1 quotas of ip 192.0.2.7\n"
    assert run(broker, "list").stdout.splitlines() == [
        "USER   CLIENT-ID  IP         QUOTA                     VALUE",
        "alice  <default>  -          producer_byte_rate        1048576",
        "alice  <default>  -          request_percentage        12.5",
        "-      app        -          controller_mutation_rate  0.5",
        "-      -          192.0.2.7  connection_creation_rate  20",
    ]
    assert json.loads(run(broker, "list", "--json").stdout)[1] == {
        "user": None,
        "client_id": "app",
        "ip": None,
        "quotas": {"controller_mutation_rate": 0.5},
    }
    assert run(broker, "remove", "--client-id", "app").exit_code == 0
    assert run(broker, "remove", "--ip", "192.0.2.7").exit_code == 0
    alice = ("--user", "alice", "--default-client-id")
    assert run(broker, "remove", *alice, "--quota", "request_percentage").exit_code == 0
    assert described(describe_quotas(broker.admin)) == [
        ({"user": "alice", "client-id": None}, {"producer_byte_rate": 1048576.0})
    ]


def test_a_refused_value_is_named_in_one_line(broker: QuotaBroker) -> None:
    done = run(broker, "set", "--default-user", "--producer-byte-rate", "-1")
    assert done.exit_code == 1
    assert done.stderr == "logbroker: producer_byte_rate is -1.0; allowed: more than 0\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("set", "--producer-byte-rate", "1"), "whose quotas?"),
        (("set", "--user", "a"), "no quota is given"),
        (("set", "--user", "a", "--default-user", "--producer-byte-rate", "1"), "exclude"),
        (("remove", "--client-id", ""), "is empty"),
    ],
)
def test_misuse_is_explained(broker: QuotaBroker, arguments: tuple[str, ...], reason: str) -> None:
    done = run(broker, *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr
