"""Reports of job runs to the service, which is a test server here."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.api.models.operations import PipelineRunRequest
from app.domain.pipeline import RunOutcome
from spark_jobs.cli import main
from spark_jobs.cli.audit import summarize_audit
from spark_jobs.cli.delivery_report import summarize_reports
from spark_jobs.cli.run_reports import reporting_run
from spark_jobs.errors import DataLost, SourceFailed
from spark_jobs.jobs.audit import AuditedDay, TopicTotal
from spark_jobs.jobs.delivery_report.figures import COUNTS, DayReport, Figures
from spark_jobs.jobs.delivery_report.job import WrittenReport
from spark_jobs.jobs.service import JobRun, RunSummary, ServiceAddress

NOWHERE = "http://127.0.0.1:1"


class Service:
    """Answers requests with the given statuses, and records them."""

    def __init__(self, *statuses: int) -> None:
        self.url = ""
        self.statuses = list(statuses)
        self.reports: list[Any] = []
        self.keys: list[str | None] = []

    @property
    def address(self) -> ServiceAddress:
        return ServiceAddress(self.url, "rwk_secret")

    def answer(self, key: str | None, path: str, body: bytes) -> int:
        self.keys.append(key)
        self.reports.append((path, json.loads(body)))
        return self.statuses.pop(0)


@contextmanager
def serving(*statuses: int) -> Iterator[Service]:
    service = Service(*statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(service.answer(self.headers["authorization"], self.path, body))
            self.end_headers()
            self.wfile.write(b"a\nb")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield service
        server.shutdown()
        thread.join()


def end_well(service: ServiceAddress | None) -> None:
    with reporting_run("load", "/tables/records", service) as run:
        run.summary = RunSummary({"records": 3}, {"events": {"end": 7}})


def test_a_successful_run_is_reported_with_its_counts() -> None:
    with serving(201) as service:
        end_well(service.address)
    ((path, body),) = service.reports
    run = PipelineRunRequest.model_validate(body).run()
    assert (path, run.job, run.subject, run.outcome) == (
        *("/pipeline/runs", "load", "/tables/records"),
        RunOutcome.DONE,
    )
    assert (run.summary, run.topics) == ({"records": 3}, {"events": {"end": 7}})
    assert service.keys == ["Bearer rwk_secret"]


@pytest.mark.parametrize(
    ("error", "outcome", "words"),
    [
        (DataLost("orders-1 [0, 20)"), "refused", "orders-1 [0, 20)"),
        (SourceFailed("silent"), "failed", "silent"),
        (KeyError("password"), "failed", "KeyError"),
    ],
)
def test_an_error_is_reported_and_reraised(error: Exception, outcome: str, words: str) -> None:
    with (
        serving(201) as service,
        pytest.raises(type(error)) as raised,
        reporting_run("load", "/t", service.address),
    ):
        raise error
    assert raised.value is error
    ((_, body),) = service.reports
    assert (body["outcome"], body["summary"]) == (outcome, {"error": words})


def test_interrupted_runs_and_runs_without_a_summary_are_not_reported() -> None:
    with serving() as service:
        with pytest.raises(KeyboardInterrupt), reporting_run("load", "/t", service.address):
            raise KeyboardInterrupt
        with reporting_run("restore", "/t", service.address):
            pass
        end_well(None)
    assert service.reports == []


def test_a_report_is_retried_after_a_server_error(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(503, 200) as service:
        end_well(service.address)
    first, second = service.reports
    assert first == second
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ((503, 500), "has a server error: 500 a"),
        ((401,), "rejects the request: 401 a"),
        ((307,), "rejects the request: "),
    ],
)
def test_a_rejected_report_is_a_line_on_standard_error(
    statuses: tuple[int, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(*statuses) as service:
        end_well(service.address)
    assert len(service.reports) == len(statuses)
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"rewind-jobs: this run was not reported to the service: {service.url}")
    assert words in line
    assert "rwk_secret" not in line


def test_an_unreachable_service_is_a_line_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end_well(ServiceAddress(NOWHERE, "rwk_secret"))
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{NOWHERE} does not answer: " in line


def test_every_report_is_within_the_limits_of_the_service() -> None:
    topics = {
        f"t{number}": {"records": number, "missing": int(number == 3)} for number in range(99)
    }
    run = JobRun(
        "load",
        "  hdfs://nn:8020/\udcff\n" + "ü" * 300,
        "done",
        RunSummary({"error": "\udcff\x00" * 400, "missing": 2**63 - 1, "version": None}, topics),
        1_790_000_000_123,
        1_790_000_000_123,
    )
    taken = PipelineRunRequest.model_validate_json(json.dumps(run.document())).run()
    assert taken.subject.startswith("hdfs://nn:8020/? ü")
    assert len(taken.subject) == 255
    assert taken.started_ms == taken.finished_ms == 1_790_000_000_123
    assert len(str(taken.summary["error"])) == 500
    # Missing records first, then the most records.
    assert list(taken.topics) == ["t3", *(f"t{number}" for number in range(98, 49, -1))]
    nameless = JobRun("load", "\n", "done", RunSummary(), 0, 0)
    assert PipelineRunRequest.model_validate(nameless.document()).subject == "-"


def test_the_summary_of_an_audit_counts_missing_and_not_pending_messages() -> None:
    def total(topic: str, status: str, *counts: int) -> TopicTotal:
        names = ("published", "loaded", "missing", "duplicated", "uncovered")
        return TopicTotal(topic, status, 2, dict(zip(names, counts, strict=True)))

    first = [total("a", "complete", 5, 5, 0, 1, 0), total("a", "missing", 5, 3, 2, 0, 0)]
    second = [total("a", "missing", 1, 0, 1, 0, 0), total("b", "pending", 9, 2, 7, 0, 0)]
    days = [
        AuditedDay(date(2026, 11, 20), first, [], is_whole=True),
        AuditedDay(date(2026, 11, 21), second, [], is_whole=False),
    ]
    found = summarize_audit(days)
    assert found.topics == {
        "a": {"published": 11, "loaded": 8, "missing": 3, "duplicated": 1, "uncovered": 0},
        "b": {"published": 9, "loaded": 2, "missing": 0, "duplicated": 0, "uncovered": 0},
    }
    assert found.counts == {
        "days": "2026-11-20 to 2026-11-21",
        "isWhole": False,
        "windows": 8,
    } | {"published": 20, "loaded": 10, "missing": 3, "duplicated": 1, "uncovered": 0}


def test_the_summary_of_a_delivery_report_adds_up_days() -> None:
    figures = Figures({name: n for n, name in enumerate(COUNTS)}, 5, 6)
    days = [
        WrittenReport(DayReport(date(2026, 11, day), 2, figures, {}, {}), 3, Path("p"))
        for day in (20, 21)
    ]
    assert summarize_reports(days[:1]).counts == {
        "days": "2026-11-20",
        **figures.counts,
        "unread": 3,
    }
    assert summarize_reports(days).counts["unread"] == 6
    assert summarize_reports(days).counts["failed"] == 2 * figures.counts["failed"]


def run_job(name: str, *options: str) -> Result:
    return CliRunner().invoke(main, [name, "--master", "local[1]", *options])


def test_each_job_reports_why_it_was_refused(tmp_path: Path) -> None:
    table, key = f"{tmp_path}/none", tmp_path / "operator.key"
    key.write_text("rwk_secret\n")
    log = ("--bootstrap-servers", "127.0.0.1:1")
    report = ("--report-table", f"{tmp_path}/report", "--day", "2026-11-21", "--to", "2026-11-22")
    wrong = {
        "load": (*log, "--topics", ","),
        "compact": ("--table", "s3://elsewhere"),
        "decode": ("--decoded-table", f"{tmp_path}/decoded", "--schema-registry", NOWHERE),
        "audit": report,
        "delivery-report": (*report, "--page", f"{tmp_path}/page"),
    }
    for name, options in wrong.items():
        with serving(201) as service:
            place = ("--table", table, "--api", service.url, "--api-key-file", str(key))
            result = run_job(name, *place, *options)
        assert result.exit_code in (1, 2), result.output
        ((_, body),) = service.reports
        taken = PipelineRunRequest.model_validate(body)
        subject = "s3://elsewhere" if name == "compact" else table
        assert (taken.job, taken.subject, taken.outcome) == (name, subject, RunOutcome.REFUSED)
        assert str(taken.summary["error"]) in result.stderr
        assert service.keys == ["Bearer rwk_secret"]


@pytest.mark.parametrize("name", ["load", "compact", "decode", "audit", "delivery-report"])
def test_invalid_service_options_are_rejected_before_the_job_starts(
    name: str, tmp_path: Path
) -> None:
    key = tmp_path / "operator.key"
    key.write_text("rwk_secret")
    options = {
        "load": ("--bootstrap-servers", "127.0.0.1:1", "--topics", "orders"),
        "decode": ("--decoded-table", "/t", "--schema-registry", NOWHERE),
        "audit": ("--report-table", "/t"),
        "delivery-report": ("--report-table", "/t", "--page", "/t"),
    }.get(name, ())
    for service, words in (
        (("--api", "127.0.0.1:8000"), "invalid URL of the service"),
        (("--api-key-file", str(key)), f"--api-key-file is {key}, but --api is missing"),
    ):
        result = run_job(name, "--table", f"{tmp_path}/table", *options, *service)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
    assert not (tmp_path / "table").exists()
