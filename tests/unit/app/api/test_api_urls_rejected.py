import pytest
from httpx import AsyncClient

from app.domain.model import Webhook
from app.webhooks.guard import Guard

pytestmark = pytest.mark.anyio


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("http://example.com/", "url.scheme"),
        ("https://127.0.0.1/", "url.host"),
        ("https://user:hunter2@example.com/", "url.user"),
        ("nonsense", "url.scheme"),
    ],
)
async def test_a_url_that_the_guard_rejects_is_a_problem_of_its_field(
    client: AsyncClient, webhook: Webhook, url: str, field: str
) -> None:
    for answer in (
        await client.post("/webhooks", json={"url": url}),
        await client.patch(f"/webhooks/{webhook.id}", json={"url": url}),
    ):
        assert answer.status_code == 400
        assert answer.json()["type"] == "urn:rewind:problem:url-refused"
        assert answer.json()["field"] == field
        assert answer.json()["allowed"]
        assert "hunter2" not in answer.text
