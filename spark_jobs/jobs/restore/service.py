"""What the restore job asks of the replay service, and tells it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from spark_jobs.errors import RefusedByService, SourceFailed
from spark_jobs.jobs.service import ServiceAddress

_TIMEOUT_S: Final = 60.0
_NOT_WAITING: Final = (404, 409)
"""The replay was cancelled meanwhile, is another job's already, or its row was deleted."""

_MISSING_CHARS_MAX: Final = 2_000
"""The service refuses a longer text."""


@dataclass(frozen=True)
class Awaited:
    """A replay that waits for its records: see the service's `GET /restorations`."""

    replay_id: str
    webhook_id: str
    start_ms: int
    end_ms: int
    partition: int
    below: int
    missing: str | None

    @classmethod
    def of(cls, members: dict[str, Any]) -> Self:
        """The item of a list."""
        return cls(
            members["replayId"],
            members["webhookId"],
            _ms(members["from"]),
            _ms(members["to"]),
            members["partition"],
            members["below"],
            members["missing"],
        )


@dataclass(frozen=True)
class Work:
    """What waits, and what is needed of the archive: the lowest offset, by partition.

    `further_partitions` are those of replays that wait, too, and that the list had no room for.
    """

    awaited: tuple[Awaited, ...]
    further_partitions: frozenset[int]
    needed: dict[int, int]


class ReplayService:
    """The service behind one URL, with an operator's key; a context manager.

    Raises:
        SourceFailed: by every method, when it does not answer.
        RefusedByService: when it says no.
    """

    def __init__(self, url: str, key: str) -> None:
        """Nobody is asked yet.

        Raises:
            InvalidOption: the URL is none, or the key cannot be one.
        """
        self._client = ServiceAddress(url, key).client(_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def work(self) -> Work:
        """What there is to do."""
        answer = self._checked(self._ask("GET", "/restorations"))
        try:
            found = answer.json()
            return Work(
                tuple(map(Awaited.of, found["items"])),
                frozenset(found["furtherPartitions"]),
                {each["partition"]: each["startOffset"] for each in found["needed"]},
            )
        except (KeyError, TypeError, ValueError) as error:
            url = self._client.base_url
            raise RefusedByService(f"{url} is no Rewind API: {error!r}") from error

    def restored(self, replay_id: str, partition: int, start: int, end: int) -> bool:
        """Tell where a replay's records are; False when it does not wait for them any more."""
        place = {"partition": partition, "startOffset": start, "endOffset": end}
        return self._tell(f"/replays/{quote(replay_id, safe='')}/restoration", place)

    def missing(self, replay_id: str, text: str) -> bool:
        """Tell what of a replay's window is not there; False when it does not wait any more."""
        path = f"/replays/{quote(replay_id, safe='')}/restoration/missing"
        return self._tell(path, {"missing": text[:_MISSING_CHARS_MAX]})

    def _tell(self, path: str, members: dict[str, Any]) -> bool:
        answer = self._ask("PUT", path, json=members)
        if answer.status_code in _NOT_WAITING:
            return False
        self._checked(answer)
        return True

    def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **request)
        except httpx.HTTPError as error:
            raise SourceFailed(f"{self._client.base_url} does not answer: {error}") from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        text = f"{answer.status_code} {answer.text[:500]}"
        if answer.is_server_error:
            raise SourceFailed(f"{self._client.base_url} cannot answer now: {text}")
        raise RefusedByService(f"{self._client.base_url} refuses: {text}")


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
