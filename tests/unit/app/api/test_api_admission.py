from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from httpx import AsyncClient, Response

from app.config import Settings
from app.http.request_limits import HEADERS_BYTES_MAX, URL_BYTES_MAX
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.http.api_clients import Issued, client_of

pytestmark = pytest.mark.anyio

OPEN_REQUESTS = 5


@pytest.fixture
def settings(settings: Settings) -> Settings:
    given = {
        "developer_requests_per_minute": 3,
        "operator_requests_per_minute": 1_000,
        "unauthorized_requests_per_minute": 20,
        "open_requests_per_minute": OPEN_REQUESTS,
    }
    return settings.model_copy(update=given)


def refused(answer: Response, status: int, slug: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:rewind:problem:{slug}"


async def test_a_request_without_a_key_is_rejected_with_a_challenge(anonymous: AsyncClient) -> None:
    answer = await anonymous.get("/webhooks")
    refused(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == 'Bearer realm="rewind"'


@pytest.mark.parametrize("path", ["/nothing", "/webhooks/", "/docs", "/", "/healthz/", "//healthz"])
async def test_without_a_key_an_unknown_path_is_rejected_like_any_other(
    anonymous: AsyncClient, path: str
) -> None:
    assert (await anonymous.get(path)).json() == (await anonymous.get("/webhooks")).json()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
async def test_health_and_description_need_no_key(anonymous: AsyncClient, path: str) -> None:
    answer = await anonymous.get(path)
    assert answer.status_code in (200, 503)
    assert "ratelimit-limit" not in answer.headers


@pytest.mark.parametrize(
    "credentials",
    [
        "Bearer rwk_" + "x" * 43,
        "Bearer nonsense",
        "bearer rwk_" + "x" * 10_000,
        "Bearer whsec_abc=",
    ],
)
async def test_an_unknown_key_is_rejected(anonymous: AsyncClient, credentials: str) -> None:
    answer = await anonymous.get("/webhooks", headers={"authorization": credentials})
    refused(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].endswith('error="invalid_token"')
    assert credentials.removeprefix("Bearer ") not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Basic dXNlcjpwYXNz")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer a b")],
        [("authorization", "Bearer \xff".encode("latin-1"))],
        [("authorization", "")],
        [("x-api-key", "{token}")],
        [("authorization", "Bearer {token}"), ("authorization", "Bearer {token}")],
        [("authorization", "Bearer {token}, Bearer {token}")],
    ],
)
async def test_other_credentials_are_rejected(
    anonymous: AsyncClient, operator: Issued, headers: list[tuple[str, str | bytes]]
) -> None:
    shown = [
        (name.encode(), value.replace("{token}", operator[1]).encode())
        if isinstance(value, str)
        else (name.encode(), value)
        for name, value in headers
    ]
    answer = await anonymous.get("/webhooks", headers=httpx.Headers(shown))
    refused(answer, 401, "unauthorized")


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer  "])
async def test_the_scheme_is_case_insensitive(
    anonymous: AsyncClient, operator: Issued, scheme: str
) -> None:
    headers = {"authorization": f"{scheme} {operator[1]}"}
    assert (await anonymous.get("/webhooks", headers=headers)).status_code == 200


async def test_a_key_in_the_query_is_ignored(anonymous: AsyncClient, operator: Issued) -> None:
    answer = await anonymous.get("/webhooks", params={"access_token": operator[1]})
    refused(answer, 401, "unauthorized")


@pytest.mark.parametrize(("method", "path"), [("POST", "/events"), ("GET", "/metrics")])
async def test_operator_routes_are_forbidden_for_developers(
    developers_client: AsyncClient, method: str, path: str
) -> None:
    answer = await developers_client.request(method, path)
    refused(answer, 403, "forbidden")
    assert answer.headers["www-authenticate"].endswith('error="insufficient_scope"')


async def test_every_response_has_quota_headers(
    client: AsyncClient, developers_client: AsyncClient
) -> None:
    answers = [
        await client.get("/webhooks"),
        await client.get("/webhooks/wh_none"),
        await client.get("/nothing"),
        await client.put("/webhooks"),
        await client.post("/webhooks", json={}),
        await client.post("/webhooks", content=b"x" * 100_000),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 404, 405, 400, 413]
    for used, answer in enumerate(answers, 1):
        assert answer.headers["ratelimit-limit"] == "1000"
        assert answer.headers["ratelimit-remaining"] == str(1_000 - used)
        assert 0 < int(answer.headers["ratelimit-reset"]) <= 60
    of_developer = await developers_client.get("/webhooks")
    assert of_developer.headers["ratelimit-limit"] == "3"


async def test_a_request_above_the_quota_has_retry_after(
    client: AsyncClient, developers_client: AsyncClient, others_client: AsyncClient
) -> None:
    answers = [await developers_client.get("/webhooks") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    refused(answers[-1], 429, "rate-limited")
    assert answers[-1].headers["ratelimit-remaining"] == "0"
    assert answers[-1].headers["retry-after"] == answers[-1].headers["ratelimit-reset"]
    assert (await others_client.get("/webhooks")).status_code == 200
    metrics = (await client.get("/metrics")).text
    assert 'rewind_http_rate_limited_total{scope="developer"} 2.0' in metrics


async def test_two_keys_of_an_account_have_a_limit_each(
    application: FastAPI, store: Store, developer: Issued, developers_client: AsyncClient
) -> None:
    for _ in range(4):
        await developers_client.get("/webhooks")
    key, _ = developer
    second = issue_key(store, key.account.name, key.scope, "")
    async with client_of(application, second) as client:
        assert (await client.get("/webhooks")).status_code == 200


@pytest.fixture
async def neighbour(application: FastAPI) -> AsyncIterator[AsyncClient]:
    """Somebody without a key, at another address."""
    transport = httpx.ASGITransport(application, client=("192.0.2.7", 1))
    async with AsyncClient(transport=transport, base_url="http://api.test") as client:
        yield client


async def test_guessing_is_limited_by_address_without_locking_out_known_keys(
    anonymous: AsyncClient,
    neighbour: AsyncClient,
    client: AsyncClient,
    others_client: AsyncClient,
) -> None:
    assert (await client.get("/webhooks")).status_code == 200
    guesses = [
        await anonymous.get("/webhooks", headers={"authorization": f"Bearer rwk_{n:043}"})
        for n in range(25)
    ]
    assert [answer.status_code for answer in guesses] == [401] * 20 + [429] * 5
    assert int(guesses[-1].headers["retry-after"]) > 0

    assert (await client.get("/webhooks")).status_code == 200
    assert (await neighbour.get("/webhooks")).status_code == 401
    refused(await others_client.get("/webhooks"), 429, "rate-limited")

    metrics = (await client.get("/metrics")).text
    assert "rewind_http_unauthorized_total 21.0" in metrics
    assert 'rewind_http_rate_limited_total{scope="none"} 6.0' in metrics


async def test_addresses_of_an_ipv6_network_share_a_limit(application: FastAPI) -> None:
    answers = []
    for number in range(21):
        transport = httpx.ASGITransport(application, client=(f"2001:db8::{number:x}", 1))
        async with AsyncClient(transport=transport, base_url="http://api.test") as client:
            answers.append((await client.get("/webhooks")).status_code)
    assert answers == [401] * 20 + [429]


async def test_a_revoked_key_is_rejected_soon(
    application: FastAPI, store: Store, developer: Issued, client: AsyncClient
) -> None:
    key, _ = developer
    async with client_of(application, developer) as revoked:
        store.revoke_key(key.id)
        assert (await revoked.get("/webhooks")).status_code == 401


async def test_a_large_head_is_rejected_before_authentication(
    anonymous: AsyncClient,
) -> None:
    refused(await anonymous.get("/webhooks?" + "x" * URL_BYTES_MAX), 414, "url-too-long")
    headers = {f"x-{n}": "x" * 1_000 for n in range(1 + HEADERS_BYTES_MAX // 1_000)}
    answer = await anonymous.get("/webhooks", headers=headers)
    refused(answer, 431, "headers-too-large")


@pytest.mark.parametrize("path", ["/healthz", "/openapi.json"])
async def test_open_paths_have_a_quota_for_each_client(application: FastAPI, path: str) -> None:
    async def request(client: str) -> Response:
        transport = httpx.ASGITransport(application, client=(client, 1))
        async with AsyncClient(transport=transport, base_url="http://rewind") as http:
            return await http.get(path)

    for _ in range(OPEN_REQUESTS):
        assert (await request("192.0.2.1")).status_code == 200
    answer = await request("192.0.2.1")
    refused(answer, 429, "rate-limited")
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert (await request("192.0.2.2")).status_code == 200
