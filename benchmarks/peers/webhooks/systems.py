"""The HTTP APIs of webhook systems, as far as the driver needs them: subscribe, publish, bring.

Each system is asked to bring what a receiver missed by its own feature for that: a replay of
Rewind, `recover` of Svix, the batch retry of Convoy. Outpost retries one event per request.

Source: the OpenAPI descriptions of Rewind, Svix, Convoy and Outpost.
"""

import datetime as dt
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx

from benchmarks import http_load
from benchmarks.http_load import HttpRequest
from benchmarks.peers.webhooks.marked_receiver import mark

EVENT_BYTES: Final = 220
EVENT_TYPE: Final = "bench.event"
TENANT: Final = "bench"
REQUEST_S: Final = 60.0
PAGE: Final = 1_000
"""Failed attempts of Outpost in one page: the most that it allows."""

RETRY_CONNECTIONS: Final = 16


def payload(number: int) -> dict[str, str]:
    """Return a payload that JSON without spaces encodes in `EVENT_BYTES`."""
    head = {"id": mark(number), "data": ""}
    empty = len(json.dumps(head, separators=(",", ":")))
    return head | {"data": "x" * (EVENT_BYTES - empty)}


class WebhookSystem(ABC):
    """A running system with one receiver; `url` is the address of its API. A context manager."""

    name: str

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._client = httpx.Client(
            headers={"authorization": f"Bearer {token}"}, timeout=REQUEST_S, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @abstractmethod
    def subscribe(self, receiver_url: str) -> None:
        """Create what delivers every event to the receiver."""

    @abstractmethod
    def publish_request(self, number: int) -> HttpRequest:
        """Return the request that publishes one event."""

    def has_recorded(self, failures: int) -> bool:  # noqa: ARG002
        """Return whether the system can bring this many failures: most of them at once."""
        return True

    @abstractmethod
    def bring_missed(self, since: dt.datetime) -> None:
        """Ask the system to send what failed since then."""

    def _encode(self, path: str, body: Mapping[str, object], status: int) -> HttpRequest:
        place = urlsplit(self.url)
        return http_load.encode(
            "POST",
            place.path + path,
            key=self._token,
            body=httpx.Request("POST", self.url, json=body).content,
            media_type="application/json",
            status=status,
        )

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """Send one request, and return the JSON of its response.

        Raises:
            HTTPStatusError: the response has an error status.
        """
        response = self._client.request(method, self.url + path, **arguments)
        response.raise_for_status()
        found: dict[str, Any] = response.json() if response.content else {}
        return found


class Rewind(WebhookSystem):
    """Rewind with an operator's key: a replay of the window."""

    name = "Rewind"

    def subscribe(self, receiver_url: str) -> None:
        """Register a webhook without automatic recovery, which would answer before we ask."""
        created = self._call(
            "POST",
            "/webhooks",
            json={"url": receiver_url, "eventTypes": [EVENT_TYPE], "autoRecovery": False},
        )
        assert created["status"] == "ENABLED", created
        self._webhook_id = created["id"]

    def publish_request(self, number: int) -> HttpRequest:
        """Return a `POST /events` with one event."""
        # The id is not the mark: a delivery has both, and each mark counts as an arrival.
        body = {"id": uuid.uuid4().hex, "type": EVENT_TYPE, "data": payload(number)}
        return self._encode("/events", body, 202)

    def bring_missed(self, since: dt.datetime) -> None:
        """Create a replay of all events since then, one in a POST."""
        self._call(
            "POST",
            "/replays",
            json={
                "webhookId": self._webhook_id,
                "from": since.isoformat(),
                "to": dt.datetime.now(dt.UTC).isoformat(),
                "maxEventsPerSecond": 1_000_000,
            },
        )


class Svix(WebhookSystem):
    """Svix with a token of the server: `recover` of the endpoint."""

    name = "Svix"

    def subscribe(self, receiver_url: str) -> None:
        """Create an application with one endpoint."""
        self._application = self._call("POST", "/api/v1/app", json={"name": TENANT})["id"]
        path = f"/api/v1/app/{self._application}/endpoint"
        self._endpoint = self._call("POST", path, json={"url": receiver_url})["id"]

    def publish_request(self, number: int) -> HttpRequest:
        """Return the request that creates a message."""
        body = {"eventType": EVENT_TYPE, "payload": payload(number)}
        return self._encode(f"/api/v1/app/{self._application}/msg", body, 202)

    def bring_missed(self, since: dt.datetime) -> None:
        """Recover the endpoint."""
        path = f"/api/v1/app/{self._application}/endpoint/{self._endpoint}/recover"
        self._call("POST", path, json={"since": since.isoformat()})


class Convoy(WebhookSystem):
    """Convoy with a key of a project: the batch retry of failed deliveries."""

    name = "Convoy"

    def __init__(self, url: str, token: str, project: str) -> None:
        super().__init__(url, token)
        self._path = f"/api/v1/projects/{project}"

    def subscribe(self, receiver_url: str) -> None:
        """Create an endpoint, and a subscription to all event types."""
        endpoint = self._call(
            "POST", f"{self._path}/endpoints", json={"name": TENANT, "url": receiver_url}
        )
        self._endpoint = endpoint["data"]["uid"]
        self._call(
            "POST",
            f"{self._path}/subscriptions",
            json={
                "name": TENANT,
                "endpoint_id": self._endpoint,
                "filter_config": {"event_types": ["*"]},
            },
        )

    def publish_request(self, number: int) -> HttpRequest:
        """Return the request that creates an event of the endpoint."""
        body = {
            "endpoint_id": self._endpoint,
            "event_type": EVENT_TYPE,
            "data": payload(number),
        }
        return self._encode(f"{self._path}/events", body, 201)

    def bring_missed(self, since: dt.datetime) -> None:  # noqa: ARG002
        """Retry all failed deliveries of the endpoint, which is new in each run."""
        self._call(
            "POST",
            f"{self._path}/eventdeliveries/batchretry",
            params={"endpointId": self._endpoint, "status": "Failure"},
        )


class Outpost(WebhookSystem):
    """Outpost with its admin key: a retry for each failed attempt, page by page."""

    name = "Outpost"

    def subscribe(self, receiver_url: str) -> None:
        """Create a new tenant with a webhook for all topics."""
        self._tenant = f"{TENANT}-{uuid.uuid4().hex}"
        self._call("PUT", f"/api/v1/tenants/{self._tenant}")
        created = self._call(
            "POST",
            f"/api/v1/tenants/{self._tenant}/destinations",
            json={"type": "webhook", "topics": ["*"], "config": {"url": receiver_url}},
        )
        self._destination = created["id"]

    def publish_request(self, number: int) -> HttpRequest:
        """Return the request that publishes an event, without automatic retries."""
        body = {
            "tenant_id": self._tenant,
            "topic": EVENT_TYPE,
            "eligible_for_retry": False,
            "data": payload(number),
        }
        return self._encode("/api/v1/publish", body, 202)

    def has_recorded(self, failures: int) -> bool:
        """Return whether it lists this many failed attempts, which it writes in batches."""
        return sum(len(page) for page in self._failed_pages()) >= failures

    def bring_missed(self, since: dt.datetime) -> None:  # noqa: ARG002
        """Retry the event of each failed attempt of the tenant, which is new in each run."""
        for page in self._failed_pages():
            requests = [self._retry_request(event_id) for event_id in page]
            http_load.send_all(self.url, requests, RETRY_CONNECTIONS)

    def _retry_request(self, event_id: str) -> HttpRequest:
        body = {"event_id": event_id, "destination_id": self._destination}
        return self._encode("/api/v1/retry", body, 202)

    def _failed_pages(self) -> Iterator[list[str]]:
        """Yield the events of failed attempts, newest first, each attempt once.

        A page begins at the time of the last attempt of the page before. The cursor of Outpost 1.2
        has milliseconds, its log microseconds: after a page that ends within a millisecond, the
        cursor skips the other attempts of that millisecond.
        """
        arguments = {"tenant_id": self._tenant, "status": "failed", "limit": str(PAGE)}
        listed: set[str] = set()
        while True:
            attempts = self._call("GET", "/api/v1/attempts", params=arguments)["models"]
            added = [attempt for attempt in attempts if attempt["id"] not in listed]
            if not added:
                return
            yield [attempt["event_id"] for attempt in added]
            listed.update(attempt["id"] for attempt in added)
            arguments["time[lte]"] = attempts[-1]["time"]
