"""Requests to the replay service: its address, its errors, and reports of job runs."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_jobs.errors import (
    CorruptTable,
    DataLost,
    InvalidOption,
    NewerTable,
    RejectedByService,
    RunSuperseded,
    SourceFailed,
    TopicReplaced,
    UnsupportedStorage,
)

if TYPE_CHECKING:
    # Loaded on demand: most runs send no requests.
    import httpx

SummaryValue = str | int | bool | None

RUNS_PATH: Final = "/pipeline/runs"
TIMEOUT_S: Final = 5.0
"""For each step of a request: a job must not wait long for its report to be stored."""

RETRY_DELAY_S: Final = 0.5

# Limits of the service.
_SUBJECT_CHARS_MAX: Final = 255
_TEXT_CHARS_MAX: Final = 500
_TOPICS_MAX: Final = 50

_CONTROL_CHARS: Final = re.compile(r"[\x00-\x20\x7f]+")

_REFUSALS: Final = (
    *(InvalidOption, UnsupportedStorage, NewerTable, DataLost, TopicReplaced),
    *(RunSuperseded, CorruptTable, RejectedByService),
)
"""Errors after which an operator has to act before the job can succeed."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The URL of the service's API and an operator key, or an empty key.

    Raises:
        InvalidOption: the URL or the key is malformed; the message quotes neither.
    """

    url: str
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        """Reject what an HTTP client would reject with the key or a password in its message."""
        import httpx

        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL:
            parsed = httpx.URL()
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise InvalidOption(
                "invalid URL of the service; allowed is https://HOST:PORT without user and password"
            )
        if not (self.key.isascii() and self.key.isprintable()):
            raise InvalidOption("invalid API key: only printable ASCII characters are allowed")

    def client(self, timeout_s: float) -> "httpx.Client":
        """A new client that sends the key; the caller closes it."""
        import httpx

        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)


def send_request(
    client: "httpx.Client", method: str, path: str, **request: Any
) -> "httpx.Response":
    """The response to a request, whatever its status.

    Raises:
        SourceFailed: there is no response.
    """
    import httpx

    try:
        return client.request(method, path, **request)
    except httpx.HTTPError as error:
        raise SourceFailed(f"{client.base_url} does not answer: {error}") from error


def require_success(client: "httpx.Client", response: "httpx.Response") -> "httpx.Response":
    """The response, if its status is 2xx.

    Raises:
        SourceFailed: it is a server error; a retry may succeed.
        RejectedByService: it is any other status.
    """
    if response.is_success:
        return response
    text = f"{response.status_code} {response.text[:500]}"
    if response.is_server_error:
        raise SourceFailed(f"{client.base_url} has a server error: {text}")
    raise RejectedByService(f"{client.base_url} rejects the request: {text}")


class RunSummary(NamedTuple):
    """The counts of a run: in total, and of each topic.

    `missing` counts what should be in the table and is not. A topic's `end` is the sum of its
    partitions' next offsets.
    """

    counts: Mapping[str, SummaryValue] = {}
    topics: Mapping[str, Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run that has ended; times are in ms since 1970, UTC."""

    job: str
    table: str
    """The value of `--table`."""

    outcome: str
    """"done", "failed" or "refused"."""

    summary: RunSummary
    started_ms: int
    finished_ms: int

    def document(self) -> dict[str, Any]:
        """The body of the report, within the limits of the service."""
        counts = {name: _truncate(value) for name, value in self.summary.counts.items()}
        return {
            "job": self.job,
            "subject": _subject(self.table),
            "outcome": self.outcome,
            "summary": counts,
            "topics": {name: dict(each) for name, each in _main_topics(self.summary.topics)},
            "startedAt": _rfc_3339(self.started_ms),
            "finishedAt": _rfc_3339(self.finished_ms),
        }


def outcome_of(error: Exception) -> str:
    """The outcome of a run that ended with an error."""
    return "refused" if isinstance(error, _REFUSALS) else "failed"


def report_run(service: ServiceAddress, run: JobRun) -> None:
    """Report a run to the service, with one retry.

    Raises:
        SourceFailed: the service does not answer or has a server error.
        RejectedByService: the service rejects the report.
    """
    document = run.document()
    with service.client(TIMEOUT_S) as client:
        try:
            _post_run(client, document)
        except SourceFailed:
            time.sleep(RETRY_DELAY_S)
            # Safe if the first request was processed: the service identifies a run by its start.
            _post_run(client, document)


def _post_run(client: "httpx.Client", document: dict[str, Any]) -> None:
    require_success(client, send_request(client, "POST", RUNS_PATH, json=document))


def _truncate(value: SummaryValue) -> SummaryValue:
    return _encodable(value)[:_TEXT_CHARS_MAX] if isinstance(value, str) else value


def _subject(table: str) -> str:
    text = _CONTROL_CHARS.sub(" ", _encodable(table)).strip()
    return text[:_SUBJECT_CHARS_MAX].strip() or "-"


def _encodable(text: str) -> str:
    # File names may have bytes that are not UTF-8.
    return text.encode(errors="replace").decode()


def _main_topics(
    topics: Mapping[str, Mapping[str, int]],
) -> list[tuple[str, Mapping[str, int]]]:
    """The topics with the most missing, then those with the most records, up to the limit."""
    by_weight = sorted(
        topics.items(),
        key=lambda item: (-item[1].get("missing", 0), -item[1].get("records", 0), item[0]),
    )
    return by_weight[:_TOPICS_MAX]


def _rfc_3339(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
