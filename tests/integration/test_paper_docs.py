"""The page of the paper's clients says what the code does."""

import inspect
import re
from collections.abc import Callable
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from logbroker.consumer import AuditedProducer, ConsumerConnector, Producer
from logbroker.consumer.settings import ConsumerSettings
from tests.support.kafka.audit_counts import Counts, audit_values, compared
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.paper_group import make_topic
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


def examples(broker: BrokerProcess) -> list[str]:
    """The page's code, in order, with this broker's address."""
    found = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    return [code.replace("localhost:9092", broker.bootstrap_servers) for code in found]


def test_the_example_does_what_it_says(
    broker: BrokerProcess, zookeeper: SharedZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = examples(broker)
    exec(first.replace("localhost:2181", zookeeper.fresh_chroot()), {})
    found = capsys.readouterr().out.splitlines()
    assert found == [
        "SentSet(topic='clicks', partition=0, offsets=(0, 1))",
        "0 0 b'first'",
        "0 1 b'second'",
    ]


def test_the_examples_of_the_audit_count_what_they_say(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap_servers, "clicks", 1)
    make_topic(broker.bootstrap_servers, "audit", 1)
    _, producing, consuming = examples(broker)
    exec(producing, {})
    there: dict[str, Any] = {}
    exec(consuming, there)
    consumer = there["consumer"]
    consumer.assign([TopicPartition("clicks", 0, 0)])

    def is_counted() -> bool:
        there["read"]()
        return compared(audit_values(broker.bootstrap_servers)) == Counts(2, 0, 0, 0)

    until(is_counted, "both messages are counted")
    (committed,) = consumer.committed([TopicPartition("clicks", 0)], DEADLINE_S)
    assert committed.offset == 2
    consumer.close()
    there["reporter"].close()


def shown(parameter: inspect.Parameter) -> str:
    """A default as the page writes it."""
    default = parameter.default
    if default is inspect.Parameter.empty:
        return "required"
    if default is None:
        return "none"
    if callable(default):
        return str(default.__name__)
    return f"{default:g}" if isinstance(default, float) else str(default)


@pytest.mark.parametrize(
    ("documented", "arguments"),
    [
        (Producer, Producer),
        (ConsumerConnector, ConsumerSettings),
        (AuditedProducer, AuditedProducer),
    ],
)
def test_every_setting_is_documented_with_its_default(
    documented: Callable[..., Any], arguments: Callable[..., Any]
) -> None:
    # The audited producer's page section lists only the settings it adds.
    before = inspect.signature(Producer).parameters if documented is AuditedProducer else ()
    lines = PAGE.splitlines()
    head = f"| setting of `{documented.__name__}` |"
    table = takewhile(
        lambda line: line.startswith("|"),
        dropwhile(lambda line: not line.startswith(head), lines),
    )
    _, _, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in table)
    found = {name: default for name, default, *_ in rows}
    assert found == {
        name: shown(parameter)
        for name, parameter in inspect.signature(arguments).parameters.items()
        if name not in before
    }
