"""When notices of accounts are sent."""

import pytest

from app.domain.account_notices import (
    PAUSES_S,
    SECRET_NOTICE_MS,
    pause_s,
    secret_notice_delay_ms,
)

HOUR_MS = 3_600_000


def test_attempts_end_after_the_last_pause() -> None:
    assert [pause_s(attempt) for attempt in range(1, len(PAUSES_S) + 2)] == [*PAUSES_S, None]


@pytest.mark.parametrize(
    ("grace_ms", "delay_ms"),
    [
        (HOUR_MS, HOUR_MS // 2),
        (2 * SECRET_NOTICE_MS, SECRET_NOTICE_MS),
        (7 * SECRET_NOTICE_MS, 6 * SECRET_NOTICE_MS),
    ],
)
def test_an_expiring_secret_is_reported_a_day_before_or_halfway(
    grace_ms: int, delay_ms: int
) -> None:
    assert secret_notice_delay_ms(grace_ms) == delay_ms
