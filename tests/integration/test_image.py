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
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS, REPLAY_OUTCOMES
from logbroker.cli import main as logbroker
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from spark_jobs.cli import main as rewind_jobs
from tests.support.processes.server_process import SECRET_KEY
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PASSWORD = "p4ss"
COMMANDS = {"rewind": rewind, "logbroker": logbroker, "rewind-jobs": rewind_jobs}


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
        timeout=DEADLINE_S,
        check=False,
    )


def services(profile: str) -> dict[str, Any]:
    done = composed(profile, REWIND_DB_PASSWORD=PASSWORD, REWIND_SECRET_KEY=SECRET_KEY)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)["services"]
    return {
        name: service
        for name, service in found.items()
        if profile in service.get("profiles", [profile])
    }


OURS = {"api", "worker", "live", "migrate", "mysql"}


def test_each_profile_has_its_own_log() -> None:
    brokers = {"zookeeper", "broker-0", "broker-1", "broker-2"}
    assert services("logbroker").keys() == OURS | brokers
    assert services("kafka").keys() == OURS | {"kafka"}


def test_a_second_data_centre_has_a_log_and_a_name_of_its_own_and_mirrors_both_ways() -> None:
    found = services("second")
    theirs = {"api-second", "live-second", "worker-second"}
    assert found.keys() == OURS | theirs | {"broker-second", "mirror-out", "mirror-back"}
    ours, other = (found[name]["environment"] for name in ("api", "api-second"))
    assert all(found[name]["environment"] == other for name in theirs)
    assert {name for name in ours if ours[name] != other[name]} == {
        "REWIND_ORIGIN",
        "REWIND_BOOTSTRAP_SERVERS",
    }
    out, back = (mirrored(found[name]["command"]) for name in ("mirror-out", "mirror-back"))
    assert (out["from"], out["to"]) == (back["to"], back["from"])
    for way, source in ((out, ours), (back, other)):
        assert way["from"] == source["REWIND_BOOTSTRAP_SERVERS"]
        assert way["origin"] == source["REWIND_ORIGIN"]
        assert set(way["topics"].split(",")) == {DELIVERY_LOG, DELIVERY_OUTCOMES, AUDIT_TOPIC}
    # What a mirror brings before there is a live path is noted nowhere.
    for name, live in (("mirror-out", "live-second"), ("mirror-back", "live")):
        assert found[name]["depends_on"] == {live: {"condition": "service_healthy"}}
        assert "test" in found[live]["healthcheck"]


def mirrored(command: list[str]) -> dict[str, str]:
    """The options of a mirror, by their names."""
    return dict(option.removeprefix("--").split("=") for option in command[2:] if "=" in option)


def test_monitoring_starts_prometheus_with_the_rules_and_a_key() -> None:
    found = services("monitoring")
    assert found.keys() == OURS | {"prometheus"}
    mounts = [volume.split(":") for volume in found["prometheus"]["volumes"]]
    ours = {Path(mount[1]).name: Path(mount[0]) for mount in mounts if mount[0].startswith("/")}
    assert ours.keys() == {"prometheus.yml", "alerts.yml"}
    assert all(source.is_file() for source in ours.values())
    (secret,) = found["prometheus"]["secrets"]
    (api, *_) = yaml.safe_load(ours["prometheus.yml"].read_text())["scrape_configs"]
    assert api["authorization"]["credentials_file"] == f"/run/secrets/{secret['source']}"


def test_the_pipeline_has_a_spark_and_loads_what_the_service_writes() -> None:
    cluster, jobs = services("pipeline"), services("jobs")
    assert cluster.keys() == OURS | {"spark-master", "spark-worker"}
    assert jobs.keys() == OURS | {"jobs"}
    program, job, *options = jobs["jobs"]["command"]
    assert (program, job) == ("rewind-jobs", "load")
    asked = dict(option.removeprefix("--").split("=") for option in options)
    assert asked["master"] == cluster["spark-worker"]["command"][-1]
    topics = {EVENTS, DELIVERY_LOG, DELIVERY_OUTCOMES, REPLAY_OUTCOMES, AUDIT_TOPIC}
    assert set(asked["topics"].split(",")) == topics
    # Executors write into the table, and the driver must see the files.
    folders = [cluster["spark-worker"]["volumes"], jobs["jobs"]["volumes"]]
    assert folders == [["tables:/var/lib/rewind/tables:rw"]] * 2
    assert asked["table"].startswith("/var/lib/rewind/tables/")
    images = {
        (each["image"], each["build"]["target"])
        for each in (*cluster.values(), *jobs.values())
        if "target" in each.get("build", {})
    }
    assert images == {("rewind-pipeline", "pipeline")}
    assert "FROM source AS pipeline" in (ROOT / "Dockerfile").read_text()


def test_no_password_or_key_is_chosen_for_the_operator() -> None:
    done = composed("logbroker", REWIND_SECRET_KEY=SECRET_KEY)
    assert done.returncode != 0
    assert "choose a password" in done.stderr
    done = composed("logbroker", REWIND_DB_PASSWORD=PASSWORD)
    assert done.returncode != 0
    assert "openssl rand -base64 32" in done.stderr


def test_each_command_and_each_setting_is_known() -> None:
    for profile in ("logbroker", "registry", "second", "jobs"):
        for name, service in services(profile).items():
            command, environment = service.get("command", [""]), service.get("environment", {})
            if command[0] in COMMANDS:
                check_command(*command, env=environment)
            check_settings(name, environment)


def check_command(program: str, verb: str, *options: str, env: dict[str, str]) -> None:
    program_command = COMMANDS[program]
    command = program_command.get_command(click.Context(program_command), verb)
    assert command is not None, f"{program} has no command {verb}"
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
    run([sys.executable, "-m", "spark_jobs", "load", "--help"], cwd=tmp_path, env=environment)
    assert (installed / "pyspark_rewind.py").exists()
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
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options
    )
    assert done.returncode == 0, done.stderr


def test_the_engine_is_sent_what_the_image_copies() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    lines = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert allowed == {name for line in lines for name in line.split()}
