"""Clients of the API under test."""

from typing import Any

import httpx
from fastapi import FastAPI

from app.domain.accounts import ApiKey
from tests.support.processes.waiting import DEADLINE_S, until

Issued = tuple[ApiKey, str]
"""An API key and its token."""


def client_of(application: FastAPI, issued: Issued | None) -> httpx.AsyncClient:
    """An in-process client that sends the key, or no key."""
    headers = {} if issued is None else {"authorization": f"Bearer {issued[1]}"}
    transport = httpx.ASGITransport(application)
    return httpx.AsyncClient(transport=transport, base_url="http://api.test", headers=headers)


def client_at(url: str, key: str) -> httpx.Client:
    """A client that sends the key to the API at a URL."""
    return httpx.Client(
        base_url=url,
        timeout=DEADLINE_S,
        headers={"authorization": f"Bearer {key}"},
        verify=False,  # no TLS
    )


def dry_run(client: httpx.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Return the estimate of a replay, once the log has answered within the API's three seconds."""
    answers: list[httpx.Response] = []

    def is_estimated() -> bool:
        answers.append(client.post("/replays", json=request | {"dryRun": True}))
        return answers[-1].status_code != 503

    until(is_estimated, "an estimate")
    assert answers[-1].status_code == 200, answers[-1].text
    found: dict[str, Any] = answers[-1].json()
    return found


def missed_events(client: httpx.Client, request: dict[str, Any]) -> int:
    """Return the exact number of events of a replay of missed events."""
    found: list[dict[str, Any]] = []

    def are_outcomes_read() -> bool:
        found.append(dry_run(client, request | {"only": "failed"}))
        return not found[-1]["isUpperBound"]

    until(are_outcomes_read, "an estimate that had the time to read the outcomes")
    assert found[-1]["isExact"]
    events: int = found[-1]["events"]
    return events
