"""Which replays of a list are meant."""

from dataclasses import dataclass

from app.domain.states import ReplayState


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    """Replays in one of `states`, of one webhook, of one account; None and no states mean any.

    They were asked for in `[created_from_ms, created_to_ms)`, and `with_failures` are those that
    gave something up.
    """

    states: frozenset[ReplayState] = frozenset()
    webhook_id: str | None = None
    account_id: str | None = None
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    with_failures: bool = False
