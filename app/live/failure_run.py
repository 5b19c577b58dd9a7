"""A run of failures of one receiver: when it is told of, and when it ends the webhook."""

from collections.abc import Callable
from typing import Final

from app.domain.model import Webhook
from app.domain.windows import format_time
from app.live.standing import Standing

FAILURES_TO_BE_DOWN: Final = 5
"""Attempts in a row; few enough to tell soon, more than bad luck brings among healthy answers."""


class FailureRun:
    """What has failed since the receiver last took an event. Times are in milliseconds since 1970.

    The store is told when a run is long enough to be an outage, and when that is over; how long
    it lasts so survives a restart of this process. How many events were in vain does not.
    """

    def __init__(
        self, standing: Standing, *, disable_after_failures: int, disable_after_s: float
    ) -> None:
        self._standing = standing
        self._disable_after_failures = disable_after_failures
        self._disable_after_ms = disable_after_s * 1_000
        self._attempts = 0
        self._events = 0
        self._since_ms: int | None = None
        self._is_told: bool | None = None
        """Whether the store believes that it is failing; None before the first answer."""

    @property
    def is_over(self) -> bool:
        """Whether the last answer was a good one, or there was none yet."""
        return not self._attempts

    @property
    def is_down(self) -> bool:
        """Whether nobody should wait for this receiver."""
        return self._attempts >= FAILURES_TO_BE_DOWN

    def took_one(self, webhook: Webhook) -> None:
        """The receiver took an event."""
        if self._is_told is None:
            self._is_told = webhook.failing_since_ms is not None
        self._attempts = self._events = 0
        self._since_ms = None
        if self._is_told:
            self._standing.note_failing(webhook.id, None)
            self._is_told = False

    def attempt_failed(self, webhook: Webhook, now_ms: int) -> None:
        """The receiver did not take an event this time."""
        self._attempts += 1
        if self._since_ms is None:
            self._since_ms = webhook.failing_since_ms or now_ms
        if self._attempts >= FAILURES_TO_BE_DOWN:
            self._tell(webhook)

    def event_failed(
        self, webhook: Webhook, reason: str, now_ms: int, disabled: Callable[[], None]
    ) -> bool:
        """An event was given up: whether its webhook is to be disabled for it.

        Then the store is told so, and `disabled` is called when it has been done.
        """
        self._events += 1
        self._tell(webhook)
        since_ms = self._since_ms or now_ms
        if self._events < self._disable_after_failures:
            return False
        if now_ms - since_ms < self._disable_after_ms:
            return False
        why = (
            f"{self._events} events in a row were not taken since {format_time(since_ms)}, "
            f"the last one for this reason: {reason}"
        )
        self._standing.disable(webhook, why, disabled)
        return True

    def _tell(self, webhook: Webhook) -> None:
        if not self._is_told:
            self._is_told = True
            self._standing.note_failing(webhook.id, self._since_ms)
