"""`rewind-jobs load` and `compact` without Spark: errors, and runs with nothing to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.config import Settings
from app.domain.accounts import Scope
from logbroker.embedded import EmbeddedBroker
from spark_jobs.cli import main
from spark_jobs.cli.options import EXIT_FAILURE, EXIT_USAGE
from tests.support.database.api_keys import issue_key
from tests.support.service.api_process import ApiProcess
from tests.support.spark.loaded_table import LoadScene


@pytest.fixture
def scene(broker: EmbeddedBroker, tmp_path: Path) -> LoadScene:
    scene = LoadScene(broker.bootstrap_servers, tmp_path)
    scene.make_topic()
    return scene


def run(scene: LoadScene, *arguments: str) -> Result:
    place = ("--bootstrap-servers", scene.bootstrap_servers, "--table", str(scene.table_folder))
    # This master is never contacted.
    return CliRunner().invoke(main, ["load", *place, "--master", "local[1]", *arguments])


def test_no_new_records_exit_with_0(scene: LoadScene) -> None:
    scene.publish(30)
    first = run(scene, "--topics", "orders", "--starting-offsets", "latest")
    assert first.exit_code == 0
    assert first.stdout.startswith("loaded 0 records (0 bytes) into 0 files (0 bytes) in ")
    assert first.stdout.endswith(f" s; {scene.table_folder} is at version 1\n")
    second = run(scene, "--topics", " orders ,orders")
    assert (second.exit_code, second.stdout) == (
        0,
        f"no new records: {scene.table_folder} is up to date\n",
    )
    third = run(scene, "--subscribe-pattern", "^ord", "--json")
    report = json.loads(third.stdout)
    assert (third.exit_code, report["version"], report["records"]) == (0, None, 0)
    (commit,) = scene.table.commits()
    assert {int(each) for each in commit.position["topics"]["orders"]["offsets"]} == {0, 1}


def test_other_users_cannot_read_a_table(scene: LoadScene) -> None:
    previous = os.umask(0o022)
    try:
        assert run(scene, "--topics", "orders", "--starting-offsets", "latest").exit_code == 0
    finally:
        os.umask(previous)
    created = [scene.table_folder, *scene.table_folder.rglob("*")]
    assert len(created) > 1
    assert [path for path in created if path.stat().st_mode & 0o077] == []


def test_runs_are_listed_by_the_service(scene: LoadScene) -> None:
    settings = Settings(data_dir=scene.folder, bootstrap_servers=scene.bootstrap_servers)
    key = scene.folder / "operator.key"
    with ApiProcess(settings, scene.folder) as api:
        key.write_text(issue_key(api.store, "nights", Scope.OPERATOR, "")[1])
        service = ("--api", api.url, "--api-key-file", str(key))
        scene.publish(30, partition=1)
        run(scene, "--topics", "orders", "--starting-offsets", "latest", *service)
        scene.publish(30, partition=1)
        scene.delete_records("orders", 1, 40)
        run(scene, "--topics", "orders", *service)
        table = str(scene.table_folder)
        place = ("--table", table, "--master", "local[1]")
        assert CliRunner().invoke(main, ["compact", *place, *service]).exit_code == 0

        listed = api.client().get("/pipeline/runs", params={"job": "load", "subject": table})
        second, first = listed.json()["items"]
        latest = api.client().get("/pipeline/runs").json()["items"]
    assert (first["outcome"], second["outcome"]) == ("done", "refused")
    assert first["topics"] == {"orders": {"records": 0, "end": 30}}
    assert (first["summary"]["version"], first["summary"]["missing"]) == (1, 0)
    assert "orders-1 [30, 40)" in second["summary"]["error"]
    assert [(each["job"], each["outcome"]) for each in latest] == [
        ("compact", "done"),
        ("load", "refused"),
    ]
    assert latest[0]["summary"]["merged"] == 0
    assert first["startedAt"] <= first["finishedAt"] <= second["startedAt"]


def test_loss_is_an_error_with_advice(scene: LoadScene) -> None:
    run(scene, "--topics", "orders", "--starting-offsets", "latest")
    scene.publish(30, partition=1)
    scene.delete_records("orders", 1, 20)
    refused = run(scene, "--topics", "orders")
    assert refused.exit_code == EXIT_FAILURE
    assert "orders-1 [0, 20)" in refused.stderr
    assert "--no-fail-on-data-loss" in refused.stderr
    assert refused.stdout == ""
    assert scene.table.head().version == 1


def test_a_deleted_topic_is_skipped_once_allowed(scene: LoadScene) -> None:
    scene.make_topic("order-notes", 1)
    pattern = ("--subscribe-pattern", "^order")
    run(scene, *pattern, "--starting-offsets", "latest")
    scene.delete_topic("order-notes")
    refused = run(scene, *pattern)
    assert refused.exit_code == EXIT_FAILURE
    assert "cannot read order-notes-0 [0, 0): the partition no longer exists" in refused.stderr
    allowed = run(scene, *pattern, "--no-fail-on-data-loss")
    assert allowed.exit_code == 0
    assert "partition order-notes-0 no longer exists: later loads skip it" in allowed.stdout
    later = run(scene, *pattern)
    assert (later.exit_code, later.stdout.partition(":")[0]) == (0, "no new records")

    # A topic of the same name matches the pattern, but the table has records of the old one.
    scene.make_topic("order-notes", 1)
    scene.publish(3, "order-notes")
    refused = run(scene, *pattern)
    assert refused.exit_code == EXIT_FAILURE
    assert "order-notes-0 was read up to 0 with topic id" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of --topics and --subscribe-pattern"),
        (("--topics", "a", "--subscribe-pattern", "b"), "one of --topics and --subscribe-pattern"),
        (("--topics", " , "), "--topics is empty"),
        (
            ("--subscribe-pattern", "("),
            "--subscribe-pattern is '('; allowed are regular expressions",
        ),
        (("--topics", "orders,elsewhere"), "--topics has elsewhere, which does not exist"),
        (("--topics", "orders", "--codec", "lzo"), "'lzo' is not one of 'zstd'"),
        (("--topics", "orders", "--max-records-per-partition", "0"), "0 is not in the range"),
    ],
)
def test_usage_errors_are_one_line(
    scene: LoadScene, arguments: tuple[str, ...], message: str
) -> None:
    result = run(scene, *arguments)
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert message in result.stderr
    assert not scene.table_folder.exists()


def test_an_unsupported_store_is_rejected(scene: LoadScene) -> None:
    result = run(scene, "--topics", "orders", "--table", "s3a://lake/orders")
    assert result.exit_code == EXIT_FAILURE
    assert "s3a://lake/orders: s3a:// is not supported" in result.stderr


def test_an_unwritable_folder_is_detected_before_spark_starts(scene: LoadScene) -> None:
    scene.publish(1)
    (scene.folder / "file").touch()
    result = run(scene, "--topics", "orders", "--table", str(scene.folder / "file/table"))
    assert (result.exit_code, result.stdout) == (EXIT_FAILURE, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"rewind-jobs: file://{scene.folder}/file/table/")
    assert line.endswith(": Not a directory")


def test_a_malformed_property_line_is_not_printed(scene: LoadScene) -> None:
    config = scene.folder / "client.properties"
    config.write_text("# ours\nclient.id = nightly\nopen-sesame\n")
    result = run(scene, "--topics", "orders", "--client-config", str(config))
    assert result.exit_code == EXIT_USAGE
    assert "line 3 is malformed" in result.stderr
    assert "open-sesame" not in result.stderr
    config.write_text("client.id = nightly\n")
    assert run(scene, "--topics", "orders", "--client-config", str(config)).exit_code == 0


def test_the_table_of_another_job_is_rejected(scene: LoadScene) -> None:
    table = scene.table
    run_of_another = table.new_run("audit")
    position = {"source": {"uri": "/t", "version": 3}}
    table.commit(table.head(), run=run_of_another, position=position, added=[])
    result = run(scene, "--topics", "orders")
    assert result.exit_code == EXIT_FAILURE
    assert "does not have the position of a load" in result.stderr


def test_a_table_without_small_files_is_unchanged(scene: LoadScene) -> None:
    run(scene, "--topics", "orders", "--starting-offsets", "latest")
    arguments = ["compact", "--table", str(scene.table_folder), "--master", "local[1]"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"nothing to merge: {scene.table_folder} has at most one small")
    message = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert (message["version"], message["merged"], message["collected"]["files"]) == (None, 0, 0)


def test_a_master_is_required(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark_jobs", "load", "--bootstrap-servers", "127.0.0.1:1"]
    result = subprocess.run(
        [*command, "--topics", "orders", "--table", str(tmp_path / "table")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (EXIT_USAGE, "")
    assert result.stderr.startswith("rewind-jobs: no Spark master; set one with --master")


def test_missing_java_is_reported(tmp_path: Path) -> None:
    tables = ["--table", str(tmp_path / "table"), "--report-table", str(tmp_path / "report")]
    result = subprocess.run(
        [sys.executable, "-m", "spark_jobs", "audit", *tables, "--master", "local[1]"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )
    assert (result.returncode, result.stdout) == (EXIT_FAILURE, "")
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("rewind-jobs: Spark did not start with master local[1]; ")
    assert "requires Java 17 or newer" in last
