"""Clients of the API under test."""

import httpx
from fastapi import FastAPI

from app.domain.accounts import ApiKey
from tests.support.processes.waiting import DEADLINE_S

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
