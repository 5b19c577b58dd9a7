"""The program that runs other programs under stress."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes


UNTIL_A_CORE_IS_BUSY = """
import pathlib, time

def ticks():
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"tests.stress.busy_core" in (entry / "cmdline").read_bytes():
                yield int((entry / "stat").read_text().rpartition(")")[2].split()[11])
        except OSError:
            pass

while max(ticks(), default=0) < 10:
    time.sleep(0.05)
"""
"""A program that waits until another process has used 0.1 s of a core."""


def stressed(*command: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "tests.stress", *command]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_command(code: int) -> None:
    done = stressed(sys.executable, "-c", f"raise SystemExit({code})")
    assert done.returncode == code
    assert done.stderr.endswith(f" stops, exit code {code}\n")


def test_a_core_is_busy_meanwhile() -> None:
    assert stressed(sys.executable, "-c", UNTIL_A_CORE_IS_BUSY).returncode == 0


def test_without_a_command_it_shows_its_usage() -> None:
    done = stressed()
    assert done.returncode == 1
    assert "python -m tests.stress COMMAND" in done.stderr
