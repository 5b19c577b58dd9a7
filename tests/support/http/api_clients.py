"""Clients of the API under test, asked without a network."""

import httpx
from fastapi import FastAPI

from app.domain.accounts import ApiKey

Issued = tuple[ApiKey, str]
"""A key, and its text."""


def client_of(application: FastAPI, issued: Issued | None) -> httpx.AsyncClient:
    """A client that shows the key, or none."""
    headers = {} if issued is None else {"authorization": f"Bearer {issued[1]}"}
    transport = httpx.ASGITransport(application)
    return httpx.AsyncClient(transport=transport, base_url="http://api.test", headers=headers)
