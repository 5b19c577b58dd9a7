"""The image and the composition of its containers, as far as they can be tried without engine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from app.cli import main as rewind
from app.config import Settings
from logbroker.cli import main as logbroker

ROOT = Path(__file__).parents[2]
PASSWORD = "p4ss"
COMMANDS = {"rewind": rewind, "logbroker": logbroker}


def composed(*profiles: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What docker-compose makes of the file."""
    program = shutil.which("docker-compose")
    if program is None:
        reason = "needs docker-compose: `apt-get install docker-compose`"
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    chosen = [part for profile in profiles for part in ("--profile", profile)]
    return subprocess.run(
        [program, *chosen, "config"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def services(profile: str) -> dict[str, Any]:
    done = composed(profile, REWIND_DB_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)["services"]
    return {
        name: service
        for name, service in found.items()
        if profile in service.get("profiles", [profile])
    }


OURS = {"api", "worker", "live", "migrate", "mysql"}


def test_each_profile_brings_a_log_of_its_own() -> None:
    brokers = {"zookeeper", "broker-0", "broker-1", "broker-2"}
    assert services("logbroker").keys() == OURS | brokers
    assert services("kafka").keys() == OURS | {"kafka"}


def test_monitoring_brings_prometheus_with_the_rules_and_a_key() -> None:
    found = services("monitoring")
    assert found.keys() == OURS | {"prometheus"}
    mounts = [volume.split(":") for volume in found["prometheus"]["volumes"]]
    ours = {Path(mount[1]).name: Path(mount[0]) for mount in mounts if mount[0].startswith("/")}
    assert ours.keys() == {"prometheus.yml", "alerts.yml"}
    assert all(source.is_file() for source in ours.values())
    (secret,) = found["prometheus"]["secrets"]
    (api, *_) = yaml.safe_load(ours["prometheus.yml"].read_text())["scrape_configs"]
    assert api["authorization"]["credentials_file"] == f"/run/secrets/{secret['source']}"


def test_no_password_is_chosen_for_the_operator() -> None:
    done = composed("logbroker")
    assert done.returncode != 0
    assert "choose a password" in done.stderr


def test_each_command_and_each_setting_is_known() -> None:
    for name, service in services("logbroker").items():
        command = service.get("command", [""])
        if command[0] in COMMANDS:
            check_command(*command, env=service["environment"])
        check_settings(name, service.get("environment", {}))


def check_command(program: str, verb: str, *options: str, env: dict[str, str]) -> None:
    command = COMMANDS[program].commands[verb]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        context = command.make_context(verb, list(options))
    assert isinstance(context, click.Context)


def check_settings(name: str, environment: dict[str, str]) -> None:
    settings = Settings.load(environment)
    if "REWIND_DATABASE" in environment:
        assert settings.database == f"mysql+pymysql://rewind:{PASSWORD}@mysql/rewind", name


def test_the_image_holds_all_that_the_commands_need(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    copy_into_image(source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The dependencies are those of this environment: what is tried is what the image copies.
    run([*pip, "--no-deps", "--target", str(installed), str(source)])
    database = f"sqlite:///{tmp_path}/rewind.db"
    environment = {"PYTHONPATH": str(installed), "REWIND_DATABASE": database}
    run([sys.executable, "-m", "app", "migrate"], cwd=tmp_path, env=environment)
    run([sys.executable, "-m", "logbroker", "serve", "--help"], cwd=tmp_path, env=environment)
    assert (tmp_path / "rewind.db").exists()


def copy_into_image(target: Path) -> None:
    """Copy what the Dockerfile copies."""
    target.mkdir()
    lines = re.findall(r"^COPY (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        *sources, to = line.split()
        for name in sources:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target / to)
            else:
                shutil.copy(ROOT / name, target / to)


def run(command: list[str], **options: Any) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, **options
    )
    assert done.returncode == 0, done.stderr


def test_the_engine_is_sent_what_the_image_copies() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    lines = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert allowed == {name for line in lines for name in line.split()}
