"""The program that runs other programs under stress."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes


def stressed(*command: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "tests.stress", *command]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_command(code: int) -> None:
    done = stressed(sys.executable, "-c", f"raise SystemExit({code})")
    assert done.returncode == code
    assert done.stderr.endswith(f" stops, exit code {code}\n")


def test_without_a_command_it_shows_its_usage() -> None:
    done = stressed()
    assert done.returncode == 1
    assert "python -m tests.stress COMMAND" in done.stderr
