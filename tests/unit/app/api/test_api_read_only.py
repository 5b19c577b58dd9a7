"""Read-only API keys."""

import httpx
import pytest
from fastapi import FastAPI

from app.domain.accounts import Scope
from app.domain.model import Webhook
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.http.api_clients import client_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scope", list(Scope))
async def test_a_read_only_key_reads_and_changes_nothing(
    application: FastAPI, store: Store, webhook: Webhook, scope: Scope
) -> None:
    issued = issue_key(store, "alice", scope, "", is_read_only=True)
    path = f"/webhooks/{webhook.id}"
    async with client_of(application, issued) as client:
        assert (await client.get(path)).status_code == 200
        for answer in (
            await client.patch(path, json={"description": "mine"}),
            await client.delete(path),
            await client.post(f"{path}/disable"),
            await client.put(f"{path}/rules/all", json={"eventTypes": ["*"]}),
        ):
            assert_refused(answer)
    assert store.webhook(webhook.id) == webhook


def assert_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 403
    assert "read-only" in answer.json()["detail"]


def test_a_read_only_key_is_marked_in_lists(store: Store) -> None:
    key, token = issue_key(store, "alice", Scope.OPERATOR, "", is_read_only=True)
    assert key.is_read_only
    assert key.scope is Scope.OPERATOR
    assert store.find_key(token) == key
    assert key in set(store.keys())
