import pytest
from console_clients import ConsoleClient

pytestmark = pytest.mark.anyio


async def test_without_jobs_the_page_says_what_to_do(client: ConsoleClient) -> None:
    page = await client.page("/console/jobs")
    assert "No replay was asked for yet" in page.main
    assert page.one(".//main//section//a[@href='/console/replays/new']") is not None
