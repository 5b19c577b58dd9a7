"""What cannot be is refused in one line each, which shows no secrets."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logbroker.cli.mirror import mirror
from logbroker.client.properties import read_properties
from logbroker.errors import ConfigurationError
from logbroker.mirror.clients import RULES
from logbroker.mirror.settings import Cluster, MirrorSettings

ROUTE = ("--from", "127.0.0.1:9", "--to", "127.0.0.1:10", "--topics", "t")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(mirror, arguments)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"source": Cluster("nowhere")},
            "invalid --from: 'nowhere'; allowed: HOST:PORT",
        ),
        ({"destination": Cluster("a:1,")}, "invalid --to: 'a:1,'; allowed: HOST:PORT[,HOST:PORT"),
        ({"destination": Cluster("a:1")}, "--to equals --from: 'a:1'; allowed: another"),
        ({"topics": ("t", "a b")}, "--topics: topic name is 'a b'; allowed is 1 to 249 of the"),
        ({"topics": ("t", "^(a")}, "--topics: invalid pattern '^(a': not a regular expression"),
        ({"topics": ("^a{1", "2}")}, "--topics: topic name is '2}'; allowed is"),
        ({"topics": ("",)}, "--topics: topic name is ''; allowed is"),
        (
            {"topics": ("_schemas", "__consumer_offsets")},
            "--topics: '__consumer_offsets' cannot be mirrored: internal topics",
        ),
        ({"origin": ""}, "invalid --origin: ''; allowed: 1 to 64 letters"),
        ({"origin": "e\u00e4st"}, "invalid --origin: 'e\u00e4st'; allowed: 1 to 64 letters"),
        ({"group": ""}, "invalid --group: ''; allowed: 1 to 249 characters"),
    ],
)
def test_an_invalid_setting_is_rejected_with_the_allowed_values(
    changes: dict[str, object], problem: str
) -> None:
    given = {"source": Cluster("a:1"), "destination": Cluster("b:1,c:2"), "topics": ("t",)}
    MirrorSettings(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError) as refusal:
        MirrorSettings(**(given | changes))  # type: ignore[arg-type]
    (line,) = str(refusal.value).splitlines()
    assert line.startswith(problem)


def test_all_problems_are_reported_at_once_with_exit_code_two() -> None:
    result = run("--from", "x", "--to", "y", "--topics", "a b", "--origin", "?")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    options = [re.search(r"--\w+", line) for line in lines]
    assert [each and each[0] for each in options] == ["--from", "--to", "--topics", "--origin"]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--compression", "none"),
        ("--metrics-port", "70000"),
        ("--metrics-port", "1", "--metrics-listen", "127.0.0.1:1"),
        ("--from-config", "/nowhere/at/all"),
        ("--metrics-listen", "127.0.0.1"),
    ],
)
def test_misuse_ends_with_exit_code_two(options: tuple[str, ...]) -> None:
    assert run(*(ROUTE if options else ()), *options).exit_code == 2


def properties(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return path


def test_properties_are_read_as_they_stand(tmp_path: Path) -> None:
    path = properties(
        tmp_path,
        "# how to get in\n\nsecurity.protocol = SASL_SSL\nsasl.mechanisms=PLAIN\n"
        "sasl.username=mirror\nsasl.password=a=b c#\n",
    )
    assert read_properties("--to-config", path, RULES) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "mirror",
        "sasl.password": "a=b c#",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hunter2\n", "line 1 is malformed; expected NAME=VALUE"),
        ("acks=1\n", "acks is '1'; the mirror sets acks itself: remove it"),
        ("message.timeout.ms=1\n", "the mirror sets message.timeout.ms itself"),
        ("group.id=x\n", "the mirror sets group.id itself"),
        ("pasword=hunter2\n", "the Kafka client has no property pasword; allowed: properties"),
        ("ssl.key.password=hunter2\nsocket.timeout.ms=1\n", "socket.timeout.ms is '1'; the Kafka"),
        (
            "sasl.mechanisms=OAUTHBEARER\n",
            "sasl.oauthbearer.method is not oidc; allowed with OAUTHBEARER",
        ),
    ],
)
def test_a_property_that_cannot_be_is_refused_without_its_secret(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = properties(tmp_path, text)
    result = run(*ROUTE, "--from-config", str(path))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"logbroker: --from-config {path}: ")
    assert problem in line
    assert "hunter2" not in line
