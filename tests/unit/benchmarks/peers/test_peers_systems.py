"""The requests to each webhook system, against a server that gives the documented responses."""

import datetime as dt
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from benchmarks import http_load
from benchmarks.peers.webhooks.marked_receiver import marks_in
from benchmarks.peers.webhooks.systems import Convoy, Outpost, Rewind, Svix, WebhookSystem

RECEIVER = "http://receiver.example/hook"
SINCE = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)

Request = tuple[str, str, Any]
"""Method, path with query, and the parsed body or None."""

Responses = Mapping[str, Sequence[tuple[int, object]]]
"""Status and body of the responses by the end of the path; the last one is repeated."""


@contextmanager
def api(responses: Responses) -> Iterator[tuple[str, list[Request]]]:
    """Run a server, and yield its URL and the requests that it gets."""
    requests: list[Request] = []
    counts = dict.fromkeys(responses, 0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            assert self.headers["authorization"] == "Bearer key"
            requests.append((self.command, self.path, json.loads(body) if body else None))
            path = self.path.partition("?")[0]
            end = max((each for each in responses if path.endswith(each)), key=len)
            status, answer = responses[end][min(counts[end], len(responses[end]) - 1)]
            counts[end] += 1
            encoded = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_PUT = respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


def use(system: WebhookSystem) -> None:
    """Subscribe the receiver, publish event 7, and ask for what was missed."""
    with system:
        system.subscribe(RECEIVER)
        http_load.send_all(system.url, [system.publish_request(7)], 1)
        system.bring_missed(SINCE)


def check_published(request: Request, path: str) -> None:
    assert request[:2] == ("POST", path)
    assert marks_in(json.dumps(request[2]).encode()) == [7]


def test_rewind_is_asked_for_a_replay_of_the_window() -> None:
    responses: Responses = {
        "/webhooks": [(201, {"id": "wh_1", "status": "ENABLED"})],
        "/events": [(202, {"accepted": 1})],
        "/replays": [(202, {"id": "rpl_1"})],
    }
    with api(responses) as (url, requests):
        use(Rewind(url, "key"))
    webhook, event, replay = requests
    assert webhook[2]["url"] == RECEIVER
    assert webhook[2]["autoRecovery"] is False
    check_published(event, "/events")
    assert (replay[2]["webhookId"], replay[2]["from"]) == ("wh_1", SINCE.isoformat())


def test_svix_is_asked_to_recover_the_endpoint() -> None:
    responses: Responses = {
        "/app": [(201, {"id": "app_1"})],
        "/endpoint": [(201, {"id": "ep_1"})],
        "/msg": [(202, {"id": "msg_1"})],
        "/recover": [(202, {"id": "task_1"})],
    }
    with api(responses) as (url, requests):
        use(Svix(url, "key"))
    assert requests[1][2] == {"url": RECEIVER}
    check_published(requests[2], "/api/v1/app/app_1/msg")
    assert requests[3] == (
        "POST",
        "/api/v1/app/app_1/endpoint/ep_1/recover",
        {"since": SINCE.isoformat()},
    )


def test_convoy_is_asked_to_retry_the_failed_deliveries() -> None:
    responses: Responses = {
        "/endpoints": [(201, {"data": {"uid": "ep_1"}})],
        "/subscriptions": [(201, {"data": {}})],
        "/events": [(201, {})],
        "/batchretry": [(200, {})],
    }
    with api(responses) as (url, requests):
        use(Convoy(f"{url}/", "key", "p1"))
    assert requests[1][2]["endpoint_id"] == "ep_1"
    check_published(requests[2], "/api/v1/projects/p1/events")
    assert requests[3][1] == (
        "/api/v1/projects/p1/eventdeliveries/batchretry?endpointId=ep_1&status=Failure"
    )


def test_outpost_is_asked_to_retry_each_event_of_every_page_once() -> None:
    responses: Responses = {
        "/destinations": [(201, {"id": "des_1"})],
        "/publish": [(202, {"id": "evt_1"})],
        "/attempts": [failed_attempts(3, 2), failed_attempts(2, 1), failed_attempts(1)],
        "/retry": [(202, {"success": True})],
    }
    with api({**responses, "": [(200, {})]}) as (url, requests):
        use(Outpost(url, "key"))
    check_published(requests[2], "/api/v1/publish")
    assert requests[2][2]["eligible_for_retry"] is False
    retried = [body["event_id"] for _, path, body in requests if path == "/api/v1/retry"]
    assert sorted(retried) == ["evt_1", "evt_2", "evt_3"]
    lists = [parse_qs(urlsplit(path).query) for _, path, _ in requests if "attempts?" in path]
    assert [query.get("time[lte]") for query in lists] == [None, [time_of(2)], [time_of(1)]]


def test_outpost_can_bring_failures_when_it_lists_that_many_attempts() -> None:
    responses: Responses = {
        "/destinations": [(201, {"id": "des_1"})],
        "/attempts": [failed_attempts(2, 1), failed_attempts(1)],
    }
    with api({**responses, "": [(200, {})]}) as (url, _), Outpost(url, "key") as outpost:
        outpost.subscribe(RECEIVER)
        assert outpost.has_recorded(2)
        assert not outpost.has_recorded(2), "it lists one by now"


def failed_attempts(*numbers: int) -> tuple[int, object]:
    """Return the response with a page of attempts, one per event."""
    attempts = [
        {"id": f"att_{number}", "event_id": f"evt_{number}", "time": time_of(number)}
        for number in numbers
    ]
    # The cursor skips attempts, so the driver must not follow it.
    return 200, {"models": attempts, "pagination": {"next": "cursor"}}


def time_of(number: int) -> str:
    return f"2026-11-23T12:00:00.00{number:04}Z"


def test_an_error_of_the_system_ends_the_run() -> None:
    with (
        api({"/app": [(401, {"detail": "Invalid token"})]}) as (url, _),
        Svix(url, "key") as svix,
        pytest.raises(httpx.HTTPStatusError, match="401"),
    ):
        svix.subscribe(RECEIVER)
