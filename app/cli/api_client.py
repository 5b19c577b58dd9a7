"""The HTTP client of commands, which turns problem documents into messages for a terminal."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote

from app.cli.operator_key import FILE_NAME, read_operator_key
from app.cli.options import exit_with_error, load_settings
from app.variables import PREFIX

if TYPE_CHECKING:
    # Importing httpx takes longer than the rest of a command.
    import httpx

    from app.config import Settings

TIMEOUT_S: Final = 60.0

_NO_CONTENT: Final = 204

T = TypeVar("T")


class ApiError(Exception):
    """The API returned a problem or did not answer. The message is for a terminal."""

    def __init__(self, message: str, active_replay_id: str | None = None) -> None:
        """`active_replay_id` is the replay that a new one of the same webhook has to wait for."""
        super().__init__(message)
        self.active_replay_id = active_replay_id


class ApiClient:
    """A client of a Rewind API. A context manager.

    Every method raises ApiError for a problem document (RFC 9457) and for a connection error.
    """

    def __init__(self, url: str, key: str, if_unauthorized: str = "") -> None:
        """Use an API key, or none if `key` is empty; `if_unauthorized` says how to give one."""
        import ssl

        import httpx

        self._if_unauthorized = if_unauthorized

        headers = {"authorization": f"Bearer {key}"} if key else {}
        # To load the authorities takes longer than most commands.
        verify = httpx.URL(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, headers=headers, verify=verify)

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """Return a client with the settings' URL and key; the default is the operator's key.

        Ends the process if the key is malformed.
        """
        key = _read_key(settings)
        return cls(settings.api_url, key, _way_out(settings, key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create_webhook(
        self, url: str, description: str, secret: str, *, auto_recovery: bool = True
    ) -> dict[str, Any]:
        """Register a webhook with a secret that its receiver already has."""
        body: dict[str, object] = {"url": url, "description": description, "secret": secret}
        if not auto_recovery:
            body["autoRecovery"] = False
        return self._request("POST", "/webhooks", json=body)

    def webhooks(self, **filters: object) -> list[dict[str, Any]]:
        """Return the latest webhooks. `filters` are query parameters; None is left out."""
        return self._list("/webhooks", filters)

    def webhook(self, webhook_id: str) -> dict[str, Any]:
        """Return a webhook."""
        return self._request("GET", f"/webhooks/{quote(webhook_id, safe='')}")

    def update_webhook(self, webhook_id: str, changes: Mapping[str, object]) -> dict[str, Any]:
        """Change members of a webhook, and return it."""
        return self._request("PATCH", f"/webhooks/{quote(webhook_id, safe='')}", json=changes)

    def notice_endpoints(self, **filters: object) -> list[dict[str, Any]]:
        """Return the latest notice endpoints. None is left out of the filters."""
        return self._list("/notice-endpoints", filters)

    def notice_endpoint(self, endpoint_id: str) -> dict[str, Any]:
        """Return a notice endpoint."""
        return self._request("GET", _notice_path(endpoint_id))

    def create_notice_endpoint(self, members: Mapping[str, object]) -> dict[str, Any]:
        """Register a notice endpoint. Returns it with its secret."""
        return self._request("POST", "/notice-endpoints", json=members)

    def update_notice_endpoint(
        self, endpoint_id: str, changes: Mapping[str, object]
    ) -> dict[str, Any]:
        """Change members of a notice endpoint, and return it."""
        return self._request("PATCH", _notice_path(endpoint_id), json=changes)

    def act_on_notice_endpoint(
        self, endpoint_id: str, action: str, **body: object
    ) -> dict[str, Any]:
        """Enable, disable, confirm or test a notice endpoint, or rotate its secret."""
        return self._request("POST", f"{_notice_path(endpoint_id)}/{action}", json=body)

    def delete_notice_endpoint(self, endpoint_id: str) -> None:
        """Delete a notice endpoint."""
        self._request("DELETE", _notice_path(endpoint_id))

    def put_rule(self, webhook_id: str, name: str, rule: dict[str, Any]) -> dict[str, Any]:
        """Create or replace a rule of a webhook."""
        return self._request("PUT", f"/webhooks/{webhook_id}/rules/{name}", json=rule)

    def publish(self, ndjson: bytes) -> int:
        """Publish events, one JSON object per line. Returns the number acknowledged."""
        headers = {"content-type": "application/x-ndjson"}
        response = self._request("POST", "/events", content=ndjson, headers=headers)
        return int(response["accepted"])

    def create_replay(
        self, webhook_id: str, start: str, end: str, **options: object
    ) -> dict[str, Any]:
        """Create a replay of `[start, end)`. Returns the job, or the estimate of a dry run.

        `options` are members of the request body. None means the default.
        """
        given = {name: value for name, value in options.items() if value is not None}
        body = {"webhookId": webhook_id, "from": start, "to": end}
        return self._request("POST", "/replays", json=body | given)

    def replays(self, **filters: object) -> list[dict[str, Any]]:
        """Return the latest jobs. `filters` are query parameters; None is left out."""
        return self._list("/replays", filters)

    def act_on_replay(self, replay_id: str, verb: str) -> dict[str, Any]:
        """Pause, resume, cancel or retry a job. Returns the job, or the new job of a retry."""
        return self._request("POST", f"/replays/{quote(replay_id, safe='')}/{verb}")

    def failures(self, replay_id: str) -> Iterator[dict[str, Any]]:
        """Yield the failures of a job, in log order."""
        path = f"/replays/{quote(replay_id, safe='')}/failures"
        query = {"limit": "200"}
        while True:
            page = self._request("GET", path, params=query)
            yield from page["items"]
            if page["nextCursor"] is None:
                return
            query["cursor"] = page["nextCursor"]

    def deliveries(
        self, webhook_id: str, count: int, **filters: object
    ) -> Iterator[dict[str, Any]]:
        """Yield up to `count` deliveries of a webhook. None is left out of the filters."""
        path = f"/webhooks/{quote(webhook_id, safe='')}/deliveries"
        for page in self._delivery_pages(path, count, filters):
            yield from page["items"]

    def undelivered_pages(self, count: int, **filters: object) -> Iterator[dict[str, Any]]:
        """Yield pages with up to `count` deliveries of several webhooks, as `deliveries` does."""
        return self._delivery_pages("/deliveries", count, filters)

    def _delivery_pages(
        self, path: str, count: int, filters: Mapping[str, object]
    ) -> Iterator[dict[str, Any]]:
        query = {name: str(value) for name, value in filters.items() if value is not None}
        while count > 0:
            page = self._request("GET", path, params=query | {"limit": str(min(count, 100))})
            yield page
            count -= len(page["items"])
            if page["nextCursor"] is None:
                return
            query["cursor"] = page["nextCursor"]

    def delivery(self, delivery_id: str) -> dict[str, Any]:
        """Return a delivery with its attempts."""
        return self._request("GET", f"/deliveries/{quote(delivery_id, safe='')}")

    def event(self, event_id: str) -> dict[str, Any]:
        """Return an event with its deliveries."""
        return self._request("GET", f"/events/{quote(event_id, safe='')}")

    def resend(self, delivery_id: str) -> dict[str, Any]:
        """Send a delivery once more. Returns the resend."""
        return self._request("POST", f"/deliveries/{quote(delivery_id, safe='')}/resend")

    def resend_events(self, webhook_id: str, **body: object) -> list[dict[str, Any]]:
        """Send the deliveries of events to a webhook once more. Returns the resends."""
        path = f"/webhooks/{quote(webhook_id, safe='')}/resend"
        items: list[dict[str, Any]] = self._request("POST", path, json=body)["items"]
        return items

    def replay(self, replay_id: str) -> dict[str, Any]:
        """Return a job."""
        return self._request("GET", f"/replays/{quote(replay_id, safe='')}")

    def _list(self, path: str, filters: Mapping[str, object]) -> list[dict[str, Any]]:
        given = {name: str(value) for name, value in filters.items() if value is not None}
        items: list[dict[str, Any]] = self._request("GET", path, params=given)["items"]
        return items

    def _request(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        import httpx

        try:
            response = self._client.request(method, path, **request)
        except httpx.HTTPError as error:
            raise ApiError(f"{self._client.base_url} does not answer: {error}") from error
        # Redirects are errors: the API has none.
        if not response.is_success:
            raise self._error_of(response)
        if response.status_code == _NO_CONTENT:
            return {}
        return self._parse(response)

    def _error_of(self, response: "httpx.Response") -> ApiError:
        way_out = self._if_unauthorized if response.status_code == 401 else ""
        try:
            problem = response.json()
            text = f"{response.status_code} {problem['title']}: {problem.get('detail', '')}"
        except (ValueError, KeyError, TypeError):
            return ApiError(f"{response.status_code}: {response.text[:500]}{way_out}")
        return ApiError(text + way_out, active_replay_id=problem.get("replayId"))

    def _parse(self, response: "httpx.Response") -> dict[str, Any]:
        try:
            document: dict[str, Any] = response.json()
        except ValueError:
            raise ApiError(
                f"{self._client.base_url} is not a Rewind API: response {response.text[:100]!r}"
            ) from None
        return document


def _notice_path(endpoint_id: str) -> str:
    return f"/notice-endpoints/{quote(endpoint_id, safe='')}"


def call_api(overrides: Mapping[str, str | None], call: Callable[[ApiClient], T]) -> T:
    """Return what `call` returns. Ends the process with the message of an ApiError."""
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            return call(client)
        except ApiError as error:
            exit_with_error(str(error))


def _read_key(settings: "Settings") -> str:
    key = settings.api_key
    if not key:
        # Other users and other machines have no such file. The API may accept no key, too.
        with suppress(OSError):
            key = read_operator_key(settings.data_dir)
    if not (key.isascii() and key.isprintable()) or " " in key:
        exit_with_error(f"malformed API key in {PREFIX}API_KEY or {FILE_NAME}")
    return key


def _way_out(settings: "Settings", key: str) -> str:
    """Where `key` was found, and how to give another one, for a key that the API rejects."""
    file = settings.data_dir / FILE_NAME
    if settings.api_key:
        source = f"the key is that of {PREFIX}API_KEY or --api-key"
    elif key:
        source = f"the key is that of {file}"
    else:
        source = f"no key found: {file} is missing or not readable"
    return (
        f"\n{source}; name the data directory of `rewind up` with --data-dir, or set "
        f"{PREFIX}API_KEY to a key of `rewind keys create`"
    )
