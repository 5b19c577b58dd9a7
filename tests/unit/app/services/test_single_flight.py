import asyncio
import threading

import pytest

from app.services.single_flight import SingleFlight

pytestmark = pytest.mark.anyio


class Oracle:
    """Answers once it is let go, with how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_free = threading.Event()

    def __call__(self) -> int:
        self.asked += 1
        assert self.is_free.wait(60)
        return self.asked


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


async def test_concurrent_calls_with_a_key_share_a_result(oracle: Oracle) -> None:
    questions: SingleFlight[str, int] = SingleFlight()
    waiting = [asyncio.create_task(questions.call("a", oracle)) for _ in range(5)]
    await asyncio.sleep(0)
    oracle.is_free.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert await questions.call("a", oracle) == 2, "answers are not kept"


async def test_calls_with_different_keys_run_separately(oracle: Oracle) -> None:
    questions: SingleFlight[str, int] = SingleFlight()
    oracle.is_free.set()
    await asyncio.gather(questions.call("a", oracle), questions.call("b", oracle))
    assert oracle.asked == 2


async def test_a_cancelled_caller_does_not_cancel_the_others(oracle: Oracle) -> None:
    questions: SingleFlight[str, int] = SingleFlight()
    leaving = asyncio.create_task(questions.call("a", oracle))
    staying = asyncio.create_task(questions.call("a", oracle))
    await asyncio.sleep(0)
    leaving.cancel()
    oracle.is_free.set()
    assert await staying == 1


async def test_all_callers_get_the_error() -> None:
    def fail() -> int:
        raise LookupError("unknown")

    questions: SingleFlight[str, int] = SingleFlight()
    asked = [questions.call("a", fail), questions.call("a", fail)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(result) for result in results] == ["unknown"] * 2
