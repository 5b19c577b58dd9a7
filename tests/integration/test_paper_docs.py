"""The page of the paper's clients says what the code does."""

import inspect
import re
from collections.abc import Callable
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest
from zookeeper import SharedZooKeeper

from logbroker.client import ConsumerConnector, Producer
from logbroker.embedded import EmbeddedBroker

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


def test_the_example_does_what_it_says(
    broker: EmbeddedBroker, zookeeper: SharedZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    here = code.replace("localhost:9092", broker.bootstrap_servers)
    here = here.replace("localhost:2181", zookeeper.fresh_chroot())
    exec(here, {})
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "SentSet(topic='clicks', partition=0, offsets=(0, 1))",
        "0 0 b'first'",
        "0 1 b'second'",
    ]


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


@pytest.mark.parametrize("documented", [Producer, ConsumerConnector])
def test_every_setting_is_told_with_its_default(documented: Callable[..., Any]) -> None:
    lines = PAGE.splitlines()
    head = f"| setting of `{documented.__name__}` |"
    table = takewhile(
        lambda line: line.startswith("|"),
        dropwhile(lambda line: not line.startswith(head), lines),
    )
    _, _, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in table)
    told = {name: default for name, default, *_ in rows}
    assert told == {
        name: shown(parameter)
        for name, parameter in inspect.signature(documented).parameters.items()
    }
