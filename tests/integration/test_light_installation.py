"""`pip install .` without an extra: the broker runs, and `rewind` names the extra it needs."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess

ROOT = Path(__file__).parents[2]

START = "import sys; from {module} import main; sys.exit(main())"


@pytest.fixture
def light_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a Python that can import our code and the base dependencies only."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for found in base_distributions():
        link_files(found, packages)
    for ours in ("app", "logbroker"):
        (packages / ours).symlink_to(ROOT / ours)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    return ["-S"]


def base_distributions() -> list[Distribution]:
    """The dependencies of the project without extras, and theirs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, Distribution] = {}
    wanted = list(project["dependencies"])
    while wanted:
        requirement = Requirement(wanted.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        extras = requirement.extras or {""}
        needed = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras
        )
        if name in found or not needed:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # a marker of an extra that was not asked for
        wanted += found[name].requires or []
    return list(found.values())


def link_files(found: Distribution, folder: Path) -> None:
    """Make the top-level modules and packages of a distribution importable from a folder."""
    tops = {file.parts[0] for file in found.files or [] if file.parts[0] != ".."}
    for top in tops - {"__pycache__"}:
        target = folder / top
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(top))))


def run(python: list[str], module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python, "-c", START.format(module=module), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def test_the_broker_and_its_tools_run(light_python: list[str], tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    serve = ["serve", "--listen", address, "--data-dir", str(tmp_path / "log")]
    arguments = [*light_python, "-m", "logbroker", *serve]
    with ServerProcess(arguments, tmp_path / "broker.log") as broker:
        broker.start("logbroker ready on ")
        cluster = ["--bootstrap-servers", address]
        for arguments in (["create", "clicks"], ["describe", "clicks"]):
            answered = run(light_python, "logbroker.cli", "topics", *arguments, *cluster)
            assert answered.returncode == 0, answered.stderr
    assert "clicks" in answered.stdout


def test_rewind_names_its_extra(light_python: list[str], tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'rewind.db'}"
    refused = run(light_python, "app.cli", "migrate", "--database", database)
    assert refused.returncode == 1
    assert "pip install 'rewind[service]'" in refused.stderr
