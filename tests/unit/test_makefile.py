"""The Makefile creates its environment with a supported Python, or says why it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

MAKEFILE = Path(__file__).parents[2] / "Makefile"
VALIDATION = "logbroker/records/validation.py"
DEADLINE_S = 60
TARGETS = (
    "demo",
    "spark",
    "up",
    "unit",
    "test",
    "test-all",
    "coverage",
    "check",
    "bench",
    "bench-peers",
)
"""Those that need the environment."""

OLD = f"""#!/bin/sh
# Runs `-c CODE` as Python 3.10 does, and everything else as the Python of the tests.
[ "$1" = -c ] || exec {sys.executable} "$@"
exec {sys.executable} -c '
import sys
sys.version_info, sys.version = (3, 10, 13, "final", 0), "3.10.13 (main)"
exec(sys.argv[1])
' "$2"
"""
NEW = f"""#!/bin/sh
# The Python of the tests. Its environments have no pip: installing that takes seconds.
[ "$1" = -m ] && shift 2 && exec {sys.executable} -m venv --without-pip "$@"
exec {sys.executable} "$@"
"""
WITHOUT_VENV = f"""#!/bin/sh
# The Python of the tests, where the package python3-venv is missing: it fails half-way.
[ "$1" = -c ] && exec {sys.executable} "$@"
mkdir -p .venv/bin
exit 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a copy of the Makefile, and with the files that an environment depends on."""
    shutil.copy(MAKEFILE, tmp_path)
    for name in ("pyproject.toml", "constraints.txt", "setup.py", VALIDATION):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def make(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `make`; the options of the `make` that runs the tests do not reach it."""
    inherited = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    return subprocess.run(
        ["make", *arguments],
        cwd=project,
        # Nothing may be installed here: an error of this test must not use the network.
        env=inherited | {"PIP_NO_INDEX": "1", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def create_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def installs(project: Path) -> bool:
    """Whether `make demo` would install the project."""
    done = make(project, "--dry-run", "demo")
    assert done.returncode == 0, done.stderr
    return "pip install" in done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_an_old_python_is_rejected_in_one_line_and_leaves_no_environment(
    project: Path, target: str
) -> None:
    old = create_program(project / "old-python", OLD)
    done = make(project, target, f"PYTHON={old}")
    message, failed = done.stderr.splitlines()
    assert message == (
        f"Python 3.11 or newer is required; {old} is 3.10.13. "
        f"Set PYTHON=..., for example: make {target} PYTHON=python3.12"
    )
    assert failed.startswith("make: ***")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (project / ".venv").exists()


def test_a_missing_python_is_rejected_in_the_same_way(project: Path) -> None:
    done = make(project, "demo", "PYTHON=no-such-python")
    assert "Python 3.11 or newer is required; no-such-python is not found. " in done.stderr
    assert done.returncode == 2
    assert not (project / ".venv").exists()


def test_an_environment_that_cannot_be_completed_is_removed(project: Path) -> None:
    python = create_program(project / "python", WITHOUT_VENV)
    assert make(project, "demo", f"PYTHON={python}").returncode == 2
    assert not (project / ".venv").exists()


def test_an_environment_of_an_old_python_is_replaced(project: Path) -> None:
    create_program(project / ".venv/bin/python", OLD)
    check_environment_is_replaced(project)


def test_an_environment_whose_python_is_gone_is_replaced(project: Path) -> None:
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").symlink_to(project / "removed" / "python3")
    check_environment_is_replaced(project)


def check_environment_is_replaced(project: Path) -> None:
    marker = project / ".venv" / ".run"
    marker.touch()
    assert installs(project)
    new = create_program(project / "new-python", NEW)
    done = make(project, ".venv/bin/python", f"PYTHON={new}")
    assert done.returncode == 0, done.stderr
    assert (project / ".venv/bin/python").resolve() == Path(sys.executable).resolve()
    assert not marker.exists()


def test_a_supported_environment_is_kept_whatever_python_is_chosen(project: Path) -> None:
    program = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    python = create_program(project / ".venv/bin/python", program)
    (project / ".venv" / ".run").touch()
    assert not installs(project)
    old = create_program(project / "old-python", OLD)
    done = make(project, ".venv/bin/python", f"PYTHON={old}")
    assert done.stdout == "make: '.venv/bin/python' is up to date.\n"
    assert python.read_text() == program


@pytest.mark.parametrize("target", ["help", "clean"])
def test_targets_without_an_environment_need_no_python(project: Path, target: str) -> None:
    assert make(project, target, "PYTHON=no-such-python").returncode == 0
