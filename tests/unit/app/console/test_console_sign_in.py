"""Sessions: sign-in, sign-out, CSRF checks, limits and security headers."""

import logging
import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import create_app
from app.config import Settings
from app.console.application import HEADERS, create_console
from app.console.sessions import SessionGuard, Viewer
from app.domain.accounts import Scope
from app.services.limits import CONCURRENT_REQUESTS_MAX
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.http.api_clients import Issued, client_of
from tests.support.http.console_clients import ConsoleClient

pytestmark = pytest.mark.anyio


async def test_sign_in_returns_to_the_requested_page(
    anonymous: ConsoleClient, operator: Issued
) -> None:
    answer = await anonymous.get("/console/jobs", state="OPEN")
    assert answer.status_code == 303
    page = await anonymous.page(answer.headers["location"])
    requested = page.one(".//input[@name='next']").get("value")
    assert requested == "/console/jobs?state=OPEN"
    answer = await anonymous.http.post(
        "/console/sign-in", data={"key": operator[1], "next": requested}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, requested)
    assert (await anonymous.get("/console/jobs")).status_code == 200


async def test_a_very_long_url_still_redirects_to_sign_in(
    anonymous: ConsoleClient,
) -> None:
    answer = await anonymous.get("/console/jobs", cursor="x" * 3_000)
    assert (await anonymous.get(answer.headers["location"])).status_code == 200


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example", "//evil.example", "/\\evil.example", "/console/\\..", "/webhooks", ""],
)
async def test_sign_in_redirects_to_pages_of_the_console_only(
    anonymous: ConsoleClient, operator: Issued, elsewhere: str
) -> None:
    answer = await anonymous.http.post(
        "/console/sign-in", data={"key": operator[1], "next": elsewhere}
    )
    assert answer.headers["location"] == "/console/deliveries"


async def test_the_cookie_is_http_only_and_secure_behind_https(
    anonymous: ConsoleClient, operator: Issued
) -> None:
    answer = await anonymous.http.post("/console/sign-in", data={"key": operator[1]})
    attributes = answer.headers["set-cookie"].split("; ")[1:]
    assert sorted(attributes) == ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=lax"]
    behind_https = await anonymous.http.post(
        "/console/sign-in", data={"key": operator[1]}, headers={"x-forwarded-proto": "https"}
    )
    assert behind_https.headers["set-cookie"].startswith("__Host-rewind-console=")
    assert "Secure" in behind_https.headers["set-cookie"].split("; ")


async def test_an_unknown_key_is_rejected_and_too_many_are_rate_limited(
    anonymous: ConsoleClient, operator: Issued, settings: Settings
) -> None:
    wrong = {"key": "rwk_" + "x" * 43}
    for _ in range(settings.unauthorized_requests_per_minute):
        answer = await anonymous.http.post("/console/sign-in", data=wrong)
        assert answer.status_code == 401
    assert "Unknown API key." in answer.text
    assert wrong["key"] not in answer.text
    for key in (wrong["key"], operator[1]):
        answer = await anonymous.http.post("/console/sign-in", data={"key": key})
        assert answer.status_code == 429
        assert "retry-after" in answer.headers


@pytest.mark.long
async def test_lookups_of_unknown_cookies_are_limited(
    client: ConsoleClient, anonymous: ConsoleClient, settings: Settings, operator: Issued
) -> None:
    console = anonymous.http
    for number in range(settings.developer_requests_per_minute):
        cookie = {"cookie": f"rewind-console={number:043}"}
        answer = await console.get("/console/log", headers=cookie)
        assert answer.status_code == 303
    answer = await console.get("/console/log", headers={"cookie": f"rewind-console={0:043}"})
    assert answer.status_code == 429
    # Sessions opened or seen before are cached.
    await console.post("/console/sign-in", data={"key": operator[1]})
    assert (await anonymous.get("/console/jobs")).status_code == 200
    assert (await client.get("/console/jobs")).status_code == 200


async def test_signing_out_ends_the_session(client: ConsoleClient) -> None:
    cookie = client.http.cookies["rewind-console"]
    answer = await client.post("/console/sign-out")
    assert answer.headers["location"] == "/console/sign-in"
    assert not client.http.cookies
    client.http.cookies.set("rewind-console", cookie)
    assert (await client.get("/console/jobs")).status_code == 303


async def test_a_revoked_key_has_no_sessions(
    application: FastAPI, store: Store, anonymous: ConsoleClient
) -> None:
    key, token = issue_key(store, "platform", Scope.OPERATOR, "")
    await anonymous.http.post("/console/sign-in", data={"key": token})
    store.revoke_key(key.id)
    cookie = anonymous.http.cookies["rewind-console"]
    # Another process, without this session in its cache.
    async with ConsoleClient(application, None) as other:
        other.http.cookies.set("rewind-console", cookie)
        assert (await other.get("/console/jobs")).status_code == 303


async def test_a_key_has_at_most_a_hundred_sessions(store: Store, operator: Issued) -> None:
    key, _ = operator
    tokens = [f"{number:043}" for number in range(101)]
    for token in tokens:
        store.open_session(key.id, token, 60.0)
    assert store.find_session_key(tokens[-1]) == key
    assert sum(store.find_session_key(token) is not None for token in tokens) == 100


async def test_a_session_expires(store: Store, operator: Issued) -> None:
    store.open_session(operator[0].id, "x" * 43, 0.0)
    assert store.find_session_key("x" * 43) is None


@pytest.mark.parametrize("csrf", ["", "0" * 64, "\N{SNOWMAN}"])
async def test_a_form_without_a_valid_csrf_token_changes_nothing(
    client: ConsoleClient, csrf: str
) -> None:
    answer = await client.http.post("/console/sign-out", data={"csrf": csrf})
    assert answer.status_code == 403
    assert (await client.get("/console/jobs")).status_code == 200


async def test_the_csrf_token_of_another_session_is_rejected(
    client: ConsoleClient, readers_client: ConsoleClient
) -> None:
    answer = await client.http.post("/console/sign-out", data={"csrf": await readers_client.csrf()})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
    ],
)
async def test_a_cross_site_form_is_rejected(
    client: ConsoleClient, anonymous: ConsoleClient, operator: Issued, headers: dict[str, str]
) -> None:
    csrf = await client.csrf()
    answer = await client.http.post("/console/sign-out", data={"csrf": csrf}, headers=headers)
    assert answer.status_code == 403
    answer = await anonymous.http.post(
        "/console/sign-in", data={"key": operator[1]}, headers=headers
    )
    assert answer.status_code == 403
    assert not anonymous.http.cookies


async def test_a_form_from_the_public_url_is_accepted(
    application: FastAPI, operator: Issued
) -> None:
    services = application.state.services
    public = Settings(**services.settings.model_dump() | {"public_url": "https://ops.example"})
    behind = create_app(replace(services, settings=public))
    async with ConsoleClient(behind, None) as client:
        answer = await client.http.post(
            "/console/sign-in",
            data={"key": operator[1]},
            headers={"origin": "https://ops.example", "host": "internal:8000"},
        )
        assert answer.status_code == 303
        assert answer.headers["set-cookie"].startswith("__Host-")


async def test_every_response_has_the_security_headers(
    client: ConsoleClient, anonymous: ConsoleClient
) -> None:
    for answer in (
        await client.get("/console/jobs"),
        await anonymous.get("/console/sign-in"),
        await anonymous.get("/console/static/console.css"),
        await client.get("/console/nowhere"),
        await anonymous.get("/console/jobs"),
    ):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


async def test_an_internal_error_has_the_security_headers(
    application: FastAPI,
) -> None:
    console = create_console(application.state.services)

    @console.get("/console/broken")
    def broken() -> None:
        raise ZeroDivisionError

    transport = httpx.ASGITransport(console, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as http:
        answer = await http.get("/console/broken")
    assert answer.status_code == 500
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-store"


async def test_concurrent_requests_of_a_key_are_limited(
    application: FastAPI, developer: Issued, other_developer: Issued
) -> None:
    console = create_console(application.state.services)
    sessions: SessionGuard = console.state.sessions
    transport = httpx.ASGITransport(console)
    with ExitStack() as concurrent:
        for _ in range(CONCURRENT_REQUESTS_MAX):
            concurrent.enter_context(sessions.limit_concurrency(Viewer(developer[0], "")))
        for issued, status in ((other_developer, 200), (developer, 429)):
            async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as it:
                await it.post("/console/sign-in", data={"key": issued[1]})
                assert (await it.get("/console/jobs")).status_code == status


async def test_pages_are_not_cached_and_static_files_are(client: ConsoleClient) -> None:
    page = await client.get("/console/jobs")
    assert page.headers["cache-control"] == "no-store"
    for url in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.text):
        file = await client.get(url)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        # A file of another version must not be cached under this URL.
        path, _, version = url.partition("?v=")
        other = await client.get(path, v=version[::-1])
        assert (other.status_code, other.headers["cache-control"]) == (200, "no-store")


async def test_pages_have_no_inline_scripts_or_styles(client: ConsoleClient) -> None:
    text = (await client.get("/console/jobs")).text
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", text)


async def test_an_unknown_page_is_not_found(client: ConsoleClient) -> None:
    answer = await client.get("/console/nowhere")
    assert answer.status_code == 404
    assert "Not found" in answer.text


async def test_developers_get_no_links_to_the_log(
    developers_client: ConsoleClient,
) -> None:
    page = await developers_client.page("/console/jobs")
    assert "Log" not in page.texts(".//nav//a")
    assert (await developers_client.get("/console/log")).status_code in (403, 404)


async def test_sign_in_and_sign_out_are_audited_without_secrets(
    anonymous: ConsoleClient, operator: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await anonymous.http.post("/console/sign-in", data={"key": operator[1]})
        cookie = anonymous.http.cookies["rewind-console"]
        await anonymous.post("/console/sign-out")
    records: list[Any] = [record for record in caplog.records if record.name == "rewind.audit"]
    actions = [record.action for record in records]
    assert actions == ["signIn", "signOut"]
    lines = " ".join(str(vars(record)) for record in caplog.records)
    assert operator[1] not in lines
    assert cookie not in lines


async def test_metrics_name_pages_by_their_paths(
    application: FastAPI, operator: Issued, client: ConsoleClient
) -> None:
    await client.page("/console/webhooks")
    async with client_of(application, operator) as api:
        metrics = (await api.get("/metrics")).text
    assert 'method="GET",route="/console/webhooks",status="200"} 1.0' in metrics
    assert 'route="/webhooks"' not in metrics
