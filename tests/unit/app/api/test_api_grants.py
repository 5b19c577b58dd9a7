"""Routes of grants."""

from typing import Any

import pytest
from httpx import AsyncClient

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.grants import Grant
from app.store import Store
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio

GRANT = {"eventTypes": ["follow.*"], "where": {"data.userId": "42"}}


@pytest.fixture
def path(developer: Issued) -> str:
    """The path of the developer's grants."""
    return f"/accounts/{developer[0].account.id}/grants"


async def test_operators_create_replace_and_delete_grants(
    client: AsyncClient, store: Store, developer: Issued, path: str
) -> None:
    account_id = developer[0].account.id
    made = await client.put(f"{path}/user-42", json=GRANT)
    assert made.status_code == 201
    assert made.headers["location"] == f"{path}/user-42"
    assert made.json() == {"accountId": account_id, "name": "user-42"} | GRANT
    replaced = await client.put(f"{path}/user-42", json={"eventTypes": ["*"]})
    assert replaced.status_code == 200
    assert (await client.get(f"{path}/user-42")).json() == replaced.json()
    assert store.grant(account_id, "user-42") == Grant(account_id, "user-42", ("*",))
    assert (await client.delete(f"{path}/user-42")).status_code == 204
    for gone in (await client.get(f"{path}/user-42"), await client.delete(f"{path}/user-42")):
        assert gone.status_code == 404
        assert "user-42" in gone.json()["detail"]


async def test_a_developer_reads_the_grants_of_its_own_account_only(
    client: AsyncClient,
    developers_client: AsyncClient,
    others_client: AsyncClient,
    path: str,
) -> None:
    for name in ("b", "c", "a"):
        await client.put(f"{path}/{name}", json=GRANT)
    first = (await developers_client.get(path, params={"limit": 2})).json()
    cursor = {"cursor": first["nextCursor"]}
    second = (await developers_client.get(path, params=cursor)).json()
    assert [grant["name"] for grant in first["items"] + second["items"]] == ["a", "b", "c"]
    assert (await developers_client.get(f"{path}/a")).json()["where"] == GRANT["where"]
    unknown = await others_client.get("/accounts/acc_none/grants")
    for other in (await others_client.get(path), await others_client.get(f"{path}/a")):
        assert other.status_code == unknown.status_code == 404
        assert other.json()["detail"].partition("account ")[2].endswith("does not exist")


async def test_developers_cannot_change_grants(
    developers_client: AsyncClient, store: Store, path: str, developer: Issued
) -> None:
    for answer in (
        await developers_client.put(f"{path}/all", json={"eventTypes": ["*"]}),
        await developers_client.delete(f"{path}/all"),
        await developers_client.put(
            f"/accounts/{DEFAULT_ACCOUNT}/grants/all", json={"eventTypes": ["*"]}
        ),
    ):
        assert answer.status_code == 403
        assert answer.json()["detail"] == "operator key required"
    assert store.grants(developer[0].account.id).items == ()


async def test_an_unknown_account_is_named(client: AsyncClient) -> None:
    for answer in (
        await client.put("/accounts/acc_none/grants/one", json=GRANT),
        await client.get("/accounts/acc_none/grants"),
        await client.get("/accounts/acc_none/grants/one"),
        await client.delete("/accounts/acc_none/grants/one"),
    ):
        assert answer.status_code == 404
        assert answer.json()["detail"] == "account 'acc_none' does not exist"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"eventTypes": []},
        {"eventTypes": ["with space"]},
        {"eventTypes": ["*"] * 51},
        {"eventTypes": ["*"], "where": {"a": [[1]]}},
        {"eventTypes": ["*"], "where": {str(number): 1 for number in range(6)}},
        {"eventTypes": ["*"], "when": {}},
    ],
)
async def test_an_invalid_grant_is_rejected(client: AsyncClient, path: str, body: Any) -> None:
    answer = await client.put(f"{path}/one", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "urn:rewind:problem:invalid-request"


@pytest.mark.parametrize("name", ["with space", "a.b", "x" * 65])
async def test_an_invalid_name_is_rejected(client: AsyncClient, path: str, name: str) -> None:
    answer = await client.put(f"{path}/{name}", json=GRANT)
    assert (answer.status_code, answer.json()["field"]) == (400, "name")


async def test_grants_of_an_account_are_limited(
    client: AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.grants.GRANTS_PER_ACCOUNT_MAX", 1)
    await client.put(f"{path}/one", json=GRANT)
    answer = await client.put(f"{path}/two", json=GRANT)
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:rewind:problem:too-many-grants"
