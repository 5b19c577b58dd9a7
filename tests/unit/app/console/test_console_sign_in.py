"""Signing in and out, and what nobody gets past."""

import logging
import re
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import create_app
from app.api.gate import UNDER_WAY_MAX
from app.config import Settings
from app.console.application import create_console
from app.console.gate import Gate, Viewer
from app.console.headers import HEADERS
from app.domain.accounts import Scope
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient

pytestmark = pytest.mark.anyio


async def test_who_is_not_signed_in_is_asked_to_and_comes_back_to_the_page(
    anonymous: ConsoleClient, operator: Issued
) -> None:
    answer = await anonymous.get("/console/jobs", state="OPEN")
    assert answer.status_code == 303
    page = await anonymous.page(answer.headers["location"])
    asked_for = page.one(".//input[@name='next']").get("value")
    assert asked_for == "/console/jobs?state=OPEN"
    answer = await anonymous.http.post(
        "/console/sign-in", data={"key": operator[1], "next": asked_for}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, asked_for)
    assert (await anonymous.get("/console/jobs")).status_code == 200


async def test_who_asked_for_a_page_with_a_very_long_address_may_still_sign_in(
    anonymous: ConsoleClient,
) -> None:
    answer = await anonymous.get("/console/jobs", cursor="x" * 3_000)
    assert (await anonymous.get(answer.headers["location"])).status_code == 200


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example", "//evil.example", "/\\evil.example", "/console/\\..", "/webhooks", ""],
)
async def test_signing_in_leads_to_no_page_elsewhere(
    anonymous: ConsoleClient, operator: Issued, elsewhere: str
) -> None:
    answer = await anonymous.http.post(
        "/console/sign-in", data={"key": operator[1], "next": elsewhere}
    )
    assert answer.headers["location"] == "/console/jobs"


async def test_the_cookie_is_for_this_host_and_no_script(
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


async def test_a_wrong_key_is_refused_and_too_many_are_not_even_looked_up(
    anonymous: ConsoleClient, operator: Issued, settings: Settings
) -> None:
    wrong = {"key": "rwk_" + "x" * 43}
    for _ in range(settings.unauthorized_requests_per_minute):
        answer = await anonymous.http.post("/console/sign-in", data=wrong)
        assert answer.status_code == 401
    assert "No key has this text." in answer.text
    assert wrong["key"] not in answer.text
    for key in (wrong["key"], operator[1]):
        answer = await anonymous.http.post("/console/sign-in", data={"key": key})
        assert answer.status_code == 429
        assert "retry-after" in answer.headers


@pytest.mark.long
async def test_cookies_that_stand_for_nobody_are_not_looked_up_for_ever(
    client: ConsoleClient, anonymous: ConsoleClient, settings: Settings, operator: Issued
) -> None:
    console = anonymous.http
    for number in range(settings.developer_requests_per_minute):
        cookie = {"cookie": f"rewind-console={number:043}"}
        answer = await console.get("/console/log", headers=cookie)
        assert answer.status_code == 303
    answer = await console.get("/console/log", headers={"cookie": f"rewind-console={0:043}"})
    assert answer.status_code == 429
    # Who has just signed in is known, and so is everybody else who was.
    await console.post("/console/sign-in", data={"key": operator[1]})
    assert (await anonymous.get("/console/jobs")).status_code == 200
    assert (await client.get("/console/jobs")).status_code == 200


async def test_signing_out_ends_the_session_and_not_only_the_cookie(client: ConsoleClient) -> None:
    cookie = client.http.cookies["rewind-console"]
    answer = await client.post("/console/sign-out")
    assert answer.headers["location"] == "/console/sign-in"
    assert not client.http.cookies
    client.http.cookies.set("rewind-console", cookie)
    assert (await client.get("/console/jobs")).status_code == 303


async def test_a_revoked_key_has_no_sessions(
    application: FastAPI, store: Store, anonymous: ConsoleClient
) -> None:
    key, token = store.create_key("platform", Scope.OPERATOR, "")
    await anonymous.http.post("/console/sign-in", data={"key": token})
    store.revoke_key(key.id)
    cookie = anonymous.http.cookies["rewind-console"]
    # A process that has never seen this session.
    async with ConsoleClient(application, None) as other:
        other.http.cookies.set("rewind-console", cookie)
        assert (await other.get("/console/jobs")).status_code == 303


async def test_sessions_of_a_key_are_bounded_and_the_oldest_end(
    store: Store, operator: Issued
) -> None:
    key, _ = operator
    tokens = [f"{number:043}" for number in range(101)]
    for token in tokens:
        store.open_session(key.id, token, 60.0)
    assert store.find_session_key(tokens[-1]) == key
    assert sum(store.find_session_key(token) is not None for token in tokens) == 100


async def test_a_session_ends_by_itself(store: Store, operator: Issued) -> None:
    store.open_session(operator[0].id, "x" * 43, 0.0)
    assert store.find_session_key("x" * 43) is None


@pytest.mark.parametrize("csrf", ["", "0" * 64, "\N{SNOWMAN}"])
async def test_a_form_without_the_token_of_this_sign_in_changes_nothing(
    client: ConsoleClient, csrf: str
) -> None:
    answer = await client.http.post("/console/sign-out", data={"csrf": csrf})
    assert answer.status_code == 403
    assert (await client.get("/console/jobs")).status_code == 200


async def test_the_token_of_another_session_is_of_no_use(
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
async def test_a_form_that_a_page_elsewhere_sends_is_refused(
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


async def test_a_form_from_the_public_address_is_taken(
    application: FastAPI, operator: Issued
) -> None:
    doors = application.state.doors
    public = Settings(**doors.settings.model_dump() | {"public_url": "https://ops.example"})
    behind = create_app(
        public,
        *(doors.store, doors.publisher, doors.history, doors.guard),
        doors.proofs._sender,
        doors.metrics,
    )
    async with ConsoleClient(behind, None) as client:
        answer = await client.http.post(
            "/console/sign-in",
            data={"key": operator[1]},
            headers={"origin": "https://ops.example", "host": "internal:8000"},
        )
        assert answer.status_code == 303
        assert answer.headers["set-cookie"].startswith("__Host-")


async def test_every_answer_tells_browsers_what_to_allow(
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


async def test_a_page_that_tells_of_what_nobody_foresaw_tells_browsers_as_well(
    application: FastAPI,
) -> None:
    console = create_console(application.state.doors)

    @console.get("/console/broken")
    def broken() -> None:
        raise ZeroDivisionError

    transport = httpx.ASGITransport(console, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as http:
        answer = await http.get("/console/broken")
    assert answer.status_code == 500
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-store"


async def test_one_key_cannot_keep_all_at_work(
    application: FastAPI, developer: Issued, other_developer: Issued
) -> None:
    console = create_console(application.state.doors)
    gate: Gate = console.state.gate
    transport = httpx.ASGITransport(console)
    with ExitStack() as under_way:
        for _ in range(UNDER_WAY_MAX):
            under_way.enter_context(gate.under_way(Viewer(developer[0], "")))
        for issued, status in ((other_developer, 200), (developer, 429)):
            async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as it:
                await it.post("/console/sign-in", data={"key": issued[1]})
                assert (await it.get("/console/jobs")).status_code == status
    assert not gate._under_way, "who is answered leaves its place"


async def test_pages_are_kept_by_nobody_and_files_for_long(client: ConsoleClient) -> None:
    page = await client.get("/console/jobs")
    assert page.headers["cache-control"] == "no-store"
    for url in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.text):
        file = await client.get(url)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        # The script of a process of another version is not kept under this one's name.
        path, _, version = url.partition("?v=")
        other = await client.get(path, v=version[::-1])
        assert (other.status_code, other.headers["cache-control"]) == (200, "no-store")


async def test_no_page_holds_a_script_or_a_style_of_its_own(client: ConsoleClient) -> None:
    text = (await client.get("/console/jobs")).text
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", text)


async def test_what_there_is_not_is_told_as_a_page(client: ConsoleClient) -> None:
    answer = await client.get("/console/nowhere")
    assert answer.status_code == 404
    assert "There is no such thing here" in answer.text


async def test_operators_pages_are_not_named_to_developers(
    developers_client: ConsoleClient,
) -> None:
    page = await developers_client.page("/console/jobs")
    assert "Log" not in page.texts(".//nav//a")
    assert (await developers_client.get("/console/log")).status_code in (403, 404)


async def test_who_signs_in_and_out_is_noted_and_no_secret_is(
    anonymous: ConsoleClient, operator: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await anonymous.http.post("/console/sign-in", data={"key": operator[1]})
        cookie = anonymous.http.cookies["rewind-console"]
        await anonymous.post("/console/sign-out")
    records: list[Any] = [record for record in caplog.records if record.name == "rewind.audit"]
    actions = [record.action for record in records]
    assert actions == ["signIn", "signOut"]
    told = " ".join(str(vars(record)) for record in caplog.records)
    assert operator[1] not in told
    assert cookie not in told
