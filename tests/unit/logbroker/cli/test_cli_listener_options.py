"""`--listen` or `--listeners`, from the command line or from the environment."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from logbroker.cli.listener_options import listener_options, take_listener_settings


def settings_of(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the settings that a command with these options takes."""
    taken: dict[str, Any] = {}

    @click.command()
    @listener_options
    def command(**options: Any) -> None:
        taken.update(take_listener_settings(options))
        assert options == {"insecure": False}

    env = {f"LOGBROKER_{name}": value for name, value in environment.items()}
    return CliRunner().invoke(command, arguments, env=env).exit_code, taken


def names_of(taken: dict[str, Any]) -> list[str]:
    return [each.name for each in taken.get("listeners", ())]


def test_without_options_the_broker_listens_on_loopback() -> None:
    assert settings_of() == (
        0,
        {
            "host": "127.0.0.1",
            "port": 9092,
            "advertised_host": None,
            "advertised_port": None,
        },
    )


def test_the_command_line_wins_over_the_environment() -> None:
    named = {"LISTENERS": "PLAINTEXT://127.0.0.1:1"}
    assert names_of(settings_of(**named)[1]) == ["PLAINTEXT"]
    assert settings_of("--listen", "127.0.0.1:2", **named)[1]["port"] == 2
    listed = settings_of("--listeners", named["LISTENERS"], LISTEN="127.0.0.1:2")[1]
    assert names_of(listed) == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--listen", "127.0.0.1:2", "--listeners", "PLAINTEXT://127.0.0.1:1"], {}),
        (["--advertised-listeners", "PLAINTEXT://127.0.0.1:1"], {}),
        ([], {"LISTENERS": "PLAINTEXT://127.0.0.1:1", "ADVERTISED_HOST": "log.example"}),
    ],
)
def test_contradictory_listeners_are_refused(
    arguments: list[str], environment: dict[str, str]
) -> None:
    assert settings_of(*arguments, **environment)[0] != 0
