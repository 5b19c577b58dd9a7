"""What the commands ask of the HTTP API, and how its problems are told on a terminal."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from app.cli import operator_key_file
from app.cli.options import refuse
from app.variables import PREFIX

if TYPE_CHECKING:
    # It takes longer to load than all the rest of a command, whose help does without it.
    import httpx

    from app.config import Settings

TIMEOUT_S: Final = 60.0


class ApiRefused(Exception):
    """The API answered with a problem, or not at all; the message is fit for a terminal."""


class ApiClient:
    """A client of one Rewind API; a context manager.

    Every method raises ApiRefused for a problem document (RFC 9457) or a lost connection.
    """

    def __init__(self, url: str, key: str) -> None:
        """Without a key (an empty text), the API answers little."""
        import httpx

        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, headers=headers)

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """A client of the API that the settings name, with their key or else the operator's.

        Ends the process when what should be a key cannot be one.
        """
        return cls(settings.api_url, _key_of(settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create_webhook(self, url: str, description: str, secret: str) -> dict[str, Any]:
        """Register a webhook whose receiver knows its secret already; the webhook."""
        asked = {"url": url, "description": description, "secret": secret}
        return self._ask("POST", "/webhooks", json=asked)

    def put_rule(self, webhook_id: str, name: str, rule: dict[str, Any]) -> dict[str, Any]:
        """Say which events a webhook wants; the rule."""
        return self._ask("PUT", f"/webhooks/{webhook_id}/rules/{name}", json=rule)

    def publish(self, ndjson: bytes) -> int:
        """Put events, one JSON object in each line, into the log; how many were acknowledged."""
        headers = {"content-type": "application/x-ndjson"}
        answer = self._ask("POST", "/events", content=ndjson, headers=headers)
        return int(answer["accepted"])

    def create_replay(
        self, webhook_id: str, start: str, end: str, **options: object
    ) -> dict[str, Any]:
        """Ask for the events of `[start, end)` again; the job, or what a dry run tells.

        `options` are members of the request, in their own spelling; None stands for the default.
        """
        given = {name: value for name, value in options.items() if value is not None}
        asked = {"webhookId": webhook_id, "from": start, "to": end}
        return self._ask("POST", "/replays", json=asked | given)

    def replays(self, **filters: object) -> list[dict[str, Any]]:
        """The latest jobs; `filters` are parameters of the list, None for those not wanted."""
        given = {name: str(value) for name, value in filters.items() if value is not None}
        items: list[dict[str, Any]] = self._ask("GET", "/replays", params=given)["items"]
        return items

    def act_on_replay(self, replay_id: str, verb: str) -> dict[str, Any]:
        """Pause, resume, cancel or retry a job: what became of it, or the job that was made."""
        return self._ask("POST", f"/replays/{quote(replay_id, safe='')}/{verb}")

    def failures(self, replay_id: str) -> Iterator[dict[str, Any]]:
        """What a job has given up, in the order of the log, asked for page by page."""
        path = f"/replays/{quote(replay_id, safe='')}/failures"
        asked = {"limit": "200"}
        while True:
            page = self._ask("GET", path, params=asked)
            yield from page["items"]
            if page["nextCursor"] is None:
                return
            asked["cursor"] = page["nextCursor"]

    def replay(self, replay_id: str) -> dict[str, Any]:
        """The job as it is now."""
        return self._ask("GET", f"/replays/{quote(replay_id, safe='')}")

    def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        import httpx

        try:
            response = self._client.request(method, path, **request)
        except httpx.HTTPError as error:
            raise ApiRefused(f"{self._client.base_url} does not answer: {error}") from error
        # A redirect is not followed: where it leads is no Rewind API either.
        if not response.is_success:
            raise ApiRefused(_problem_text(response))
        return self._document(response)

    def _document(self, response: "httpx.Response") -> dict[str, Any]:
        try:
            answer: dict[str, Any] = response.json()
        except ValueError:
            raise ApiRefused(
                f"{self._client.base_url} is no Rewind API: it answers {response.text[:100]!r}"
            ) from None
        return answer


def _key_of(settings: "Settings") -> str:
    key = settings.api_key
    if not key:
        # Many are not the operator, or on another machine: the API says whether it takes a key.
        with suppress(OSError):
            key = operator_key_file.read(settings.data_dir)
    if not (key.isascii() and key.isprintable()) or " " in key:
        refuse(f"{PREFIX}API_KEY or {operator_key_file.FILE_NAME} holds no API key")
    return key


def _problem_text(response: "httpx.Response") -> str:
    try:
        problem = response.json()
        return f"{response.status_code} {problem['title']}: {problem.get('detail', '')}"
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code}: {response.text[:500]}"
