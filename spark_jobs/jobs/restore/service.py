"""Requests of the restore job to the replay service."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import quote

from spark_jobs.errors import RejectedByService
from spark_jobs.jobs.service import ServiceAddress, require_success, send_request

_TIMEOUT_S: Final = 60.0
_NOT_WAITING: Final = (404, 409)
"""The replay was cancelled or deleted, or another job has restored it."""

_MISSING_CHARS_MAX: Final = 2_000
"""The service's limit for this text."""


@dataclass(frozen=True)
class PendingRestore:
    """A replay that waits for its records, as in the service's `GET /restorations`."""

    replay_id: str
    webhook_id: str
    start_ms: int
    end_ms: int
    partition: int
    below: int
    missing: str | None

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
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
class RestoreQueue:
    """The waiting replays, and the lowest offset of the archive needed by partition.

    `further_partitions` are those of waiting replays beyond the size limit of the list.
    """

    pending: tuple[PendingRestore, ...]
    further_partitions: frozenset[int]
    needed: dict[int, int]


class ReplayService:
    """Client of the service with an operator key; a context manager.

    Raises:
        SourceFailed: by every method, if the service does not answer or has a server error.
        RejectedByService: by every method, if the service rejects the request.
    """

    def __init__(self, url: str, key: str) -> None:
        """Sends no request.

        Raises:
            InvalidOption: the URL or the key is malformed.
        """
        self._client = ServiceAddress(url, key).client(_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def fetch_queue(self) -> RestoreQueue:
        """The waiting replays, and what the archive must keep."""
        response = send_request(self._client, "GET", "/restorations")
        require_success(self._client, response)
        try:
            found = response.json()
            return RestoreQueue(
                tuple(map(PendingRestore.from_json, found["items"])),
                frozenset(found["furtherPartitions"]),
                {each["partition"]: each["startOffset"] for each in found["needed"]},
            )
        except (KeyError, TypeError, ValueError) as error:
            url = self._client.base_url
            raise RejectedByService(f"{url} is not a Rewind API: {error!r}") from error

    def report_restored(self, replay_id: str, partition: int, start: int, end: int) -> bool:
        """Report where a replay's records are; False if it is no longer waiting."""
        offsets = {"partition": partition, "startOffset": start, "endOffset": end}
        return self._put(f"/replays/{quote(replay_id, safe='')}/restoration", offsets)

    def report_missing(self, replay_id: str, text: str) -> bool:
        """Report which records are missing; False if the replay is no longer waiting."""
        path = f"/replays/{quote(replay_id, safe='')}/restoration/missing"
        return self._put(path, {"missing": text[:_MISSING_CHARS_MAX]})

    def _put(self, path: str, members: dict[str, Any]) -> bool:
        response = send_request(self._client, "PUT", path, json=members)
        if response.status_code in _NOT_WAITING:
            return False
        require_success(self._client, response)
        return True


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
