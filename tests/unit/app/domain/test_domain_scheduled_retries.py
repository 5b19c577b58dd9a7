"""Which pauses of a retry schedule are live, and when the next scheduled retry is due."""

from dataclasses import replace

import pytest

from app.domain.delivery import Rejected, Unreachable
from app.domain.endpoint_options import EndpointOptions, Ordering
from app.domain.model import Validation
from app.domain.retry import RETRY_AFTER_S_MAX, SPREAD
from app.domain.scheduled_retries import RetrySchedule, scheduled_pause_s, split_schedule
from tests.unit.app.webhooks.stored_webhook import webhook_at

OPERATORS = RetrySchedule((3, 27, 242), (1_800, 7_200))
WEBHOOK = webhook_at("https://example.com/", Validation.PING)
ERROR = Rejected(500, None, "HTTP 500")


@pytest.mark.parametrize(
    ("pauses_s", "live_s", "scheduled_s"),
    [
        ((5, 60), (5, 60), ()),
        ((5, 60, 600, 5), (5, 60, 600), (5,)),
        # Below 600 s each counts as 600 s, which Retry-After may request.
        ((601, 1_199), (601, 1_199), ()),
        ((601, 1_200), (601,), (1_200,)),
        ((3_600, 5), (), (3_600, 5)),
    ],
)
def test_the_first_pauses_are_live_as_far_as_the_operator_allows(
    pauses_s: tuple[float, ...], live_s: tuple[float, ...], scheduled_s: tuple[float, ...]
) -> None:
    assert split_schedule(pauses_s, OPERATORS.live_s) == (live_s, scheduled_s)


def test_a_webhook_has_its_own_schedule_or_that_of_the_operator() -> None:
    assert OPERATORS.of_webhook(WEBHOOK) == OPERATORS
    own = replace(WEBHOOK, options=EndpointOptions(retry_schedule_s=(5, 60, 60, 7_200)))
    assert OPERATORS.of_webhook(own) == ((5, 60, 60), (7_200,))


@pytest.mark.parametrize("schedule_s", [None, (5, 60, 60, 7_200)])
def test_in_strict_order_nothing_is_scheduled(schedule_s: tuple[int, ...] | None) -> None:
    options = EndpointOptions(retry_schedule_s=schedule_s, ordering=Ordering.STRICT)
    found = OPERATORS.of_webhook(replace(WEBHOOK, options=options))
    assert found.scheduled_s == ()
    assert len(found.live_s) == 3


def test_pauses_are_spread_and_end_with_the_schedule() -> None:
    scheduled_s = OPERATORS.scheduled_s
    assert scheduled_pause_s(scheduled_s, 0, ERROR, 0.5) == 1_800
    assert scheduled_pause_s(scheduled_s, 1, Unreachable("timeout"), 0) == 7_200 * (1 - SPREAD)
    assert scheduled_pause_s(scheduled_s, 2, ERROR, 0.5) is None
    assert scheduled_pause_s((), 0, ERROR, 0.5) is None


@pytest.mark.parametrize("status", [400, 410, 422])
def test_a_permanent_rejection_ends_the_retries(status: int) -> None:
    assert scheduled_pause_s(OPERATORS.scheduled_s, 0, replace(ERROR, status=status), 0.5) is None


def test_retry_after_lengthens_a_pause_within_its_limit() -> None:
    throttled = Rejected(429, 100_000.0, "HTTP 429")
    assert scheduled_pause_s((1, 1), 0, throttled, 0.5) == RETRY_AFTER_S_MAX
    assert scheduled_pause_s((1_800,), 0, throttled, 0.5) == 1_800
