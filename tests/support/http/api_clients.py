"""In-process clients of the API under test."""

import httpx
from fastapi import FastAPI

from app.domain.accounts import ApiKey

Issued = tuple[ApiKey, str]
"""An API key and its token."""


def client_of(application: FastAPI, issued: Issued | None) -> httpx.AsyncClient:
    """Return a client that sends the key, or no key."""
    headers = {} if issued is None else {"authorization": f"Bearer {issued[1]}"}
    transport = httpx.ASGITransport(application)
    return httpx.AsyncClient(transport=transport, base_url="http://api.test", headers=headers)
