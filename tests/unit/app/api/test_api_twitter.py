"""The Twitter-compatible route: error codes and bodies. Its replays: integration tests."""

import time
from datetime import UTC, datetime

import pytest
from httpx import AsyncClient

from app.api.twitter_errors import twitter_response
from app.config import Settings
from app.domain.model import Webhook
from app.domain.windows import DAY_MS, MINUTE_MS
from app.http.problems import BODY_TOO_LARGE, BUSY, FORBIDDEN, INTERNAL, REPLAY_ACTIVE, Problem
from app.services.errors import FieldError
from app.store import Store

pytestmark = pytest.mark.anyio

NOW_MS = time.time_ns() // 1_000_000


def path(webhook_id: str) -> str:
    return f"/1.1/account_activity/replay/webhooks/{webhook_id}/subscriptions/all.json"


def minute(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M")


HOUR_AGO = minute(NOW_MS - 60 * MINUTE_MS)
HALF_AGO = minute(NOW_MS - 30 * MINUTE_MS)
TOO_OLD = minute(NOW_MS - 5 * DAY_MS - 60 * MINUTE_MS)
AHEAD = minute(NOW_MS + 60 * MINUTE_MS)


async def errors(
    client: AsyncClient, webhook_id: str, **dates: str
) -> tuple[int, list[tuple[int, str]]]:
    answer = await client.post(path(webhook_id), params=dates)
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert list(document) == ["errors"]
    return answer.status_code, [(error["code"], error["message"]) for error in document["errors"]]


@pytest.mark.parametrize(
    ("from_date", "to_date", "code", "words"),
    [
        (None, HALF_AGO, 357, "from_date: queryParam is required"),
        (HOUR_AGO, None, 357, "to_date: queryParam is required"),
        ("2026112106", HALF_AGO, 358, "from_date is '2026112106'"),
        ("2026-11-21T06:00:00Z", HALF_AGO, 358, "from_date"),
        (HOUR_AGO, "202613320000", 358, "to_date is '202613320000'"),
        (HOUR_AGO, AHEAD, 368, "to_date"),
        (AHEAD, HALF_AGO, 368, "from_date"),
        (HALF_AGO, HOUR_AGO, 356, "reversed"),
        (HOUR_AGO, HOUR_AGO, 356, "empty"),
        (TOO_OLD, minute(NOW_MS - MINUTE_MS), 356, "longer than 5 days"),
        (TOO_OLD, minute(NOW_MS - 5 * DAY_MS), 356, "before the retained history"),
    ],
    # Without them the names of the tests would change with the hour.
    ids=[
        "no-from",
        "no-to",
        "from-too-short",
        "from-in-another-form",
        "to-in-month-13",
        "to-ahead",
        "from-ahead",
        "reversed",
        "empty",
        "too-long",
        "too-old",
    ],
)
async def test_dates_that_cannot_be_replayed_have_twitters_codes(
    client: AsyncClient,
    webhook: Webhook,
    from_date: str | None,
    to_date: str | None,
    code: int,
    words: str,
) -> None:
    dates = {"from_date": from_date, "to_date": to_date}
    given = {name: date for name, date in dates.items() if date is not None}
    status, ((found, message),) = await errors(client, webhook.id, **given)
    assert (status, found) == (400, code)
    assert words in message


async def test_every_missing_parameter_is_reported(client: AsyncClient, webhook: Webhook) -> None:
    status, found = await errors(client, webhook.id)
    assert (status, [code for code, _ in found]) == (400, [357, 357])


async def test_a_negative_id_is_rejected(client: AsyncClient) -> None:
    status, ((code, message),) = await errors(client, "-5", from_date=HOUR_AGO, to_date=HALF_AGO)
    assert (status, code) == (400, 360)
    assert "-5" in message


async def test_a_disabled_webhook_has_twitters_code(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    store.disable_webhook(webhook.id, "the receiver answered 410")
    found = await errors(client, webhook.id, from_date=HOUR_AGO, to_date=HALF_AGO)
    assert (found[0], found[1][0][0]) == (400, 214)


async def test_a_webhook_of_another_account_has_twitters_code(
    others_client: AsyncClient, webhook: Webhook
) -> None:
    for webhook_id in (webhook.id, "wh_none"):
        found = await errors(others_client, webhook_id, from_date=HOUR_AGO, to_date=HALF_AGO)
        assert (found[0], found[1][0][0]) == (404, 34)


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, 32),
        ('OAuth oauth_token="1"', 32),
        (f"Bearer rwk_{'A' * 43}", 61),
    ],
    ids=["none", "three-legged", "unknown"],
)
async def test_a_missing_or_unknown_key_has_twitters_code(
    anonymous: AsyncClient, webhook: Webhook, authorization: str | None, code: int
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    answer = await anonymous.post(path(webhook.id), headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (401, code)
    assert answer.headers["www-authenticate"].startswith("Bearer")


class TestWithALimitOfOne:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"developer_requests_per_minute": 1})

    async def test_too_many_requests_have_twitters_code(
        self, developers_client: AsyncClient, webhook: Webhook
    ) -> None:
        await developers_client.get("/webhooks")
        answer = await developers_client.post(path(webhook.id))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (429, 88)
        assert int(answer.headers["retry-after"]) > 0


async def test_a_log_that_is_down_has_twitters_code(client: AsyncClient, webhook: Webhook) -> None:
    found = await errors(client, webhook.id, from_date=HOUR_AGO, to_date=HALF_AGO)
    assert (found[0], found[1][0][0]) == (503, 67)


@pytest.mark.parametrize(
    ("method", "elsewhere", "status", "code"),
    [
        ("GET", path("wh_1"), 405, 358),
        ("POST", "/1.1/account_activity/webhooks.json", 404, 34),
        ("GET", "/1.1/", 404, 34),
    ],
)
async def test_all_errors_below_the_prefix_have_twitters_form(
    client: AsyncClient, method: str, elsewhere: str, status: int, code: int
) -> None:
    answer = await client.request(method, elsewhere)
    assert answer.status_code == status
    assert [error["code"] for error in answer.json()["errors"]] == [code]


async def test_a_long_url_is_rejected_in_twitters_form(client: AsyncClient) -> None:
    answer = await client.post("/1.1/" + "x" * 20_000)
    assert (answer.status_code, list(answer.json())) == (414, ["errors"])


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (Problem(FORBIDDEN, "operator key required"), 403, 200),
        (Problem(REPLAY_ACTIVE, "webhook 'wh_1' has one"), 409, 355),
        (Problem(INTERNAL, "an unexpected error"), 500, 0),
        (Problem(BUSY, "too many streams"), 503, 67),
        (Problem.of_fields(BODY_TOO_LARGE, [FieldError("body", "9 bytes", "8")]), 413, 358),
    ],
)
def test_every_problem_has_a_code(problem: Problem, status: int, code: int) -> None:
    response = twitter_response(problem)
    assert response.status_code == status
    assert f'{{"errors": [{{"code": {code}, "message": "'.encode() in response.body


async def test_the_openapi_document_has_both_error_forms(client: AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    operation = document["paths"][path("{webhook_id}")]["post"]
    for status, answer in operation["responses"].items():
        name = "TwitterJob" if status == "202" else "TwitterErrors"
        schema = answer["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{name}"}
