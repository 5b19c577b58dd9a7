"""Every metric that the operators' pages and alerts name is one that a process shows."""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from app.api.models.operations import ProcessDocument
from app.cli.service import BROKER_DEFAULTS
from app.config import Settings
from app.domain import processes
from app.domain.model import JobStatistics
from app.live.handovers import Handovers
from app.live.metrics import LiveMetrics
from app.live.routing import RoutingTable
from app.live.server import LivePath
from app.log.publisher import EventPublisher
from app.replay_workers.metrics import WorkerMetrics
from app.services.metrics import ApiMetrics, _registry_of
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from logbroker.config import _BROKER_RANGES
from logbroker.mirror import metrics as mirror_metrics
from logbroker.schemas.service_metrics import ServiceMetrics
from logbroker.server.metrics.families import FAMILIES, PREFIX
from tests.unit.docs.doc_pages import DOCS, page, section, table

OPERATIONS = DOCS / "operations"
INDEX, METRICS = page("operations/README.md"), page("operations/metrics.md")
ALERTS = [
    rule
    for group in yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PAGES = sorted({path.name for path in OPERATIONS.glob("*.md")} - {"README.md", "metrics.md"})
HEADINGS = [
    "What it means",
    "What users see",
    "What to look at",
    "What to do",
    "When it is over",
]

Shown = dict[str, tuple[str, str]]
"""Type and labels of metrics, by their names."""

_OURS = re.compile(r"\b(?:rewind|logbroker)_[a-z_]+")


def families(registry: CollectorRegistry) -> Iterator[tuple[str, str, str]]:
    """Name, type and labels of what a registry shows, without what every process has."""
    for collector in list(registry._collector_to_names):
        if isinstance(collector, ProcessCollector):
            continue
        if isinstance(collector, MetricWrapperBase):
            (family,) = collector.describe()
            yield _described(family, collector._labelnames)
            continue
        # Ours, which are asked with a sample in each family.
        for family in collector.collect():
            labels = [label for label in family.samples[0].labels if label != "le"]
            yield _described(family, labels)


def _described(family: Metric, labels: Iterable[str]) -> tuple[str, str, str]:
    name = family.name + ("_total" if family.type == "counter" else "")
    return name, family.type, ", ".join(labels)


def shown_by(*registries: CollectorRegistry) -> Shown:
    return {
        name: (kind, labels) for registry in registries for name, kind, labels in families(registry)
    }


def api() -> Shown:
    return shown_by(
        ApiMetrics().registry,
        _registry_of(JobStatistics({}, {"here": 0.0}, {"here": 0}, {"here": 0.0})),
    )


def worker() -> Shown:
    return shown_by(WorkerMetrics().registry)


async def _live(database: str) -> Shown:
    settings, metrics = Settings(database=database), LiveMetrics()
    with closing(Store.open(database)) as store:
        path = LivePath(
            settings,
            store,
            RoutingTable(store),
            Handovers(store, settings.origin),
            WebhookSender(Guard.of(settings), SenderLimits()),
            EventPublisher("127.0.0.1:1", origin="here", server="this"),
            metrics,
        )
        path._matching.lags[0] = 1
        path._watch()
        return shown_by(metrics.registry)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return asyncio.run(_live(f"sqlite:///{tmp_path_factory.mktemp('live')}/rewind.db"))


def broker() -> Shown:
    return {
        PREFIX + name: (family.kind, ", ".join(family.labels)) for name, family in FAMILIES.items()
    }


def mirror() -> Shown:
    return {
        mirror_metrics.PREFIX + name: (family.kind, ", ".join(family.labels))
        for name, family in mirror_metrics.METRICS.items()
    }


def registry() -> Shown:
    return shown_by(ServiceMetrics()._all)


def documented(heading: str) -> Shown:
    return {row["metric"]: (row["type"], row["labels"]) for row in table(METRICS, heading)}


def test_every_metric_of_the_api_is_documented_with_its_type_and_labels() -> None:
    assert documented("## API") == api()


def test_every_metric_of_a_worker_is_documented_with_its_type_and_labels() -> None:
    assert documented("## Worker") | documented("## Deliveries") == worker()


def test_every_metric_of_the_live_path_is_documented_with_its_type_and_labels(live: Shown) -> None:
    assert documented("## Live path") | documented("## Deliveries") == live


def test_every_metric_of_a_mirror_is_documented_with_its_type_and_labels() -> None:
    assert documented("## Mirror") == mirror()


def test_every_metric_of_the_registry_is_documented_with_its_type_and_labels() -> None:
    assert documented("## Registry of schemas") == registry()


def test_only_shared_metrics_are_documented_as_shared(live: Shown) -> None:
    assert documented("## Deliveries").keys() == worker().keys() & live.keys()


def samples(shown: Shown) -> set[str]:
    """The names that a metric's samples may have."""
    names = set(shown)
    for name, (kind, _) in shown.items():
        if kind == "histogram":
            names |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    return names


@pytest.mark.parametrize("name", ["alerts.yml", "README.md", "metrics.md", *PAGES])
def test_every_documented_metric_exists(name: str, live: Shown) -> None:
    known = samples(api() | worker() | live | broker() | mirror() | registry())
    named = set(_OURS.findall((OPERATIONS / name).read_text()))
    assert named <= known


def test_every_label_that_an_alert_asks_for_is_one_of_its_metric(live: Shown) -> None:
    shown = api() | worker() | live | broker() | mirror() | registry()
    asked = 0
    for rule in ALERTS:
        for name, selector in re.findall(r"([a-z_]+)\{([^}]*(?:\{[^}]*\}[^}]*)*)\}", rule["expr"]):
            known = shown.get(re.sub(r"_(bucket|count|sum)$", "", name)) or shown.get(name)
            if known is None:
                continue
            asked += 1
            labels = set(re.findall(r"([a-z]+)\s*[=!]", selector))
            assert labels <= {*known[1].split(", "), "job", "instance", "le"}, rule["alert"]
    assert asked > 10


def kebab(alert: str) -> str:
    """The page of an alert: its name without the product, in small letters."""
    bare = re.sub(r"^(Rewind|Logbroker)", "", alert).replace("ZooKeeper", "Zookeeper")
    return re.sub(r"(?<!^)([A-Z])", r"-\1", bare).lower() + ".md"


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {rule["alert"]: rule["annotations"]["page"] for rule in ALERTS}
    assert pages == {alert: kebab(alert) for alert in pages}
    assert sorted(pages.values()) == PAGES


def test_every_alert_is_in_the_index_with_its_severity() -> None:
    rows = {row["alert"]: row["severity"] for row in table(INDEX, "## Alerts")}
    assert rows == {
        f"[{rule['alert']}]({rule['annotations']['page']})": rule["labels"]["severity"]
        for rule in ALERTS
    }


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_an_alert_answers_the_same_questions(name: str) -> None:
    text = (OPERATIONS / name).read_text()
    (alert,) = [rule["alert"] for rule in ALERTS if rule["annotations"]["page"] == name]
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert all(each.strip() for each in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])


def composed() -> dict[str, Any]:
    root: Path = DOCS.parent
    document: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return document


def test_prometheus_scrapes_what_the_containers_show() -> None:
    document = composed()
    services, ours = document["services"], document["x-service"]["environment"]
    targets = set()
    for job in yaml.safe_load((OPERATIONS / "prometheus.yml").read_text())["scrape_configs"]:
        for static in job.get("static_configs", ()):
            targets |= {tuple(target.split(":")) for target in static["targets"]}
        for found in job.get("dns_sd_configs", ()):
            targets |= {(name, str(found["port"])) for name in found["names"]}
    ports = {
        "api": str(Settings().port),
        "worker": ours["REWIND_WORKER_METRICS_PORT"],
        "live": ours["REWIND_LIVE_METRICS_PORT"],
        "registry": services["registry"]["ports"][0].rpartition(":")[2],
    }
    shown = {(name, ports.get(name.removesuffix("-second"))) for name in services}
    for name, service in services.items():
        command = " ".join(service.get("command", ()))
        shown |= {(name, port) for port in re.findall(r"--metrics-listen=\S+:([0-9]+)", command)}
    assert {("broker-2", "9103"), ("mirror-back", "9104")} <= shown
    assert targets == {(name, port) for name, port in shown if port}


def test_the_jobs_that_alerts_ask_for_are_scraped() -> None:
    document = yaml.safe_load((OPERATIONS / "prometheus.yml").read_text())
    scraped = {job["job_name"] for job in document["scrape_configs"]}
    asked = {
        job
        for rule in ALERTS
        for jobs in re.findall(r"job=~?\"([^\"]+)\"", rule["expr"])
        for job in jobs.split("|")
    }
    assert asked == scraped


def test_documented_log_events_are_in_the_source() -> None:
    root = DOCS.parent
    paths = [*(root / "app").rglob("*.py"), root / "logbroker/client/audit_reporter.py"]
    source = "".join(path.read_text() for path in paths)
    rows = re.findall(r"^\| `[a-z_.*]+` \| (.+) \|$", section(INDEX, "## Logs"), re.MULTILINE)
    words = {word for row in rows for word in re.findall(r"`([a-z]+(?:[- ][a-z]+)*)`", row)}
    assert {"taken-over", "routing-table-not-refreshed", "not ready"} <= words
    unknown = {word for word in words if not re.search(rf'"{word}( \w+=%s)*"', source)}
    # Levels are written as the standard library names them.
    assert unknown <= {each.lower() for each in logging.getLevelNamesMapping()}


def test_every_member_of_a_process_is_documented() -> None:
    documented = {row["member"]: row[""] for row in table(INDEX, "## Processes")}
    assert documented.keys() == {field.alias for field in ProcessDocument.model_fields.values()}
    assert documented["kind"] == ", ".join(processes.ProcessKind)
    assert f"after {processes.SILENT_AFTER_MS // 1_000} seconds" in documented["isSilent"]
    assert processes.HEARTBEAT_S == 5


def test_committed_offsets_of_our_brokers_never_expire() -> None:
    name = "LOGBROKER_OFFSETS_RETENTION_MINUTES"
    longest = {field: str(highest) for field, _, highest in _BROKER_RANGES}
    services = composed()["services"].values()
    brokers = [each for each in services if each.get("command", ())[:2] == ["logbroker", "serve"]]
    assert len(brokers) == 4
    stated = {each["environment"].get(name) for each in brokers} | {BROKER_DEFAULTS.get(name)}
    assert stated == {longest["offsets_retention_minutes"]}
    assert (
        composed()["services"]["kafka"]["environment"]["KAFKA_OFFSETS_RETENTION_MINUTES"] in stated
    )
