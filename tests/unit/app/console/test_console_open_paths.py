import pytest

from app.config import Settings
from tests.support.http.console_clients import ConsoleClient

pytestmark = pytest.mark.anyio

OPEN_REQUESTS = 3


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"open_requests_per_minute": OPEN_REQUESTS})


async def test_pages_without_a_session_have_a_quota(
    anonymous: ConsoleClient, client: ConsoleClient
) -> None:
    paths = ["/console", "/console/sign-in", "/console/static/console.css"]
    for path in paths[:OPEN_REQUESTS]:
        assert (await anonymous.http.get(path)).status_code in (200, 303)
    for path in paths:
        answer = await anonymous.http.get(path)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 60
    assert (await client.http.get("/console/jobs")).status_code == 200
