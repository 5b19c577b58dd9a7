"""Where the replay service is, and which key opens it."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_jobs.errors import (
    CorruptTable,
    DataLost,
    InvalidOption,
    NewerTable,
    RefusedByService,
    RunSuperseded,
    SourceFailed,
    TopicReplaced,
    UnsupportedStorage,
)

if TYPE_CHECKING:
    import httpx


from dataclasses import field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Most runs have no service to report to.
    import httpx


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The URL of the service's API, and an operator's key, or "".

    Raises:
        InvalidOption: the URL is none, or the key cannot be one; neither is repeated.
    """

    url: str
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        _check(self.url, self.key)

    def client(self, timeout_s: float) -> "httpx.Client":
        """A client that shows the key; whoever asks for it closes it."""
        import httpx

        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)


def _check(url: str, key: str) -> None:
    """Refuse what a client would only fail by, with the key or a password in what it says."""
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise InvalidOption(
            "the URL of the service is not like https://HOST:PORT, without user and password"
        )
    if not (key.isascii() and key.isprintable()):
        raise InvalidOption("the key has characters that no key of the service has")


Scalar = str | int | bool | None

PATH: Final = "/pipeline/runs"

TIMEOUT_S: Final = 5.0
"""For each step of an attempt: nobody waits for a job that only has to say that it is done."""

PAUSE_S: Final = 0.5

# The service refuses more.
_SUBJECT_CHARS_MAX: Final = 255
_TEXT_CHARS_MAX: Final = 500
_TOPICS_MAX: Final = 50

_UNWANTED: Final = re.compile(r"[\x00-\x20\x7f]+")

_REFUSALS: Final = (
    *(InvalidOption, UnsupportedStorage, NewerTable, DataLost, TopicReplaced),
    *(RunSuperseded, CorruptTable, RefusedByService),
)
"""Errors by which a job says that somebody has to decide or mend something before it runs again."""


class Facts(NamedTuple):
    """What a run counted: of all, and of each topic.

    What is not there and should be is `missing`; a topic's `end` adds up the offsets that its
    partitions were loaded up to.
    """

    summary: Mapping[str, Scalar] = {}
    topics: Mapping[str, Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run that is over; times are in ms since 1970, UTC."""

    job: str
    table: str
    """The URI of the table that it read or wrote: what `--table` says."""

    outcome: str
    """"done", "failed" or "refused"."""

    facts: Facts
    started_ms: int
    finished_ms: int

    def document(self) -> dict[str, Any]:
        """The body of the request that tells of it: within what the service takes."""
        texts = {name: _bounded(value) for name, value in self.facts.summary.items()}
        return {
            "job": self.job,
            "subject": _subject(self.table),
            "outcome": self.outcome,
            "summary": texts,
            "topics": {name: dict(counts) for name, counts in _foremost(self.facts.topics)},
            "startedAt": _time(self.started_ms),
            "finishedAt": _time(self.finished_ms),
        }


def how_it_ended(error: Exception) -> str:
    """The outcome of a run that an error has ended."""
    return "refused" if isinstance(error, _REFUSALS) else "failed"


def tell(service: ServiceAddress, run: JobRun) -> None:
    """Tell of a run, and once more if nobody answers.

    Raises:
        SourceFailed: nobody has answered, or the service cannot now.
        RefusedByService: it says no.
    """
    document = run.document()
    with service.client(TIMEOUT_S) as client:
        try:
            _tell(client, document)
        except SourceFailed:
            time.sleep(PAUSE_S)
            # It may have been heard the first time: the service knows a run by its start.
            _tell(client, document)


def _tell(client: "httpx.Client", document: dict[str, Any]) -> None:
    import httpx

    try:
        answer = client.post(PATH, json=document)
    except httpx.HTTPError as error:
        raise SourceFailed(f"{client.base_url} does not answer: {error}") from error
    if answer.is_success:
        return
    text = f"{answer.status_code} {answer.text[:500]}"
    if answer.is_server_error:
        raise SourceFailed(f"{client.base_url} cannot answer now: {text}")
    raise RefusedByService(f"{client.base_url} refuses: {text}")


def _bounded(value: Scalar) -> Scalar:
    return _encodable(value)[:_TEXT_CHARS_MAX] if isinstance(value, str) else value


def _subject(table: str) -> str:
    text = _UNWANTED.sub(" ", _encodable(table)).strip()
    return text[:_SUBJECT_CHARS_MAX].strip() or "-"


def _encodable(text: str) -> str:
    # Names of files may be no text.
    return text.encode(errors="replace").decode()


def _foremost(
    topics: Mapping[str, Mapping[str, int]],
) -> list[tuple[str, Mapping[str, int]]]:
    """As many topics as are taken: those that lost something, and those that most happened to."""
    by_weight = sorted(
        topics.items(),
        key=lambda item: (-item[1].get("missing", 0), -item[1].get("records", 0), item[0]),
    )
    return by_weight[:_TOPICS_MAX]


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
