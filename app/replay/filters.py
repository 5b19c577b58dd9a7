"""Which replays of a list are meant."""

from dataclasses import dataclass

from app.replay.states import ReplayState


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    """Replays in one of `states`, of one webhook, of one account; None and no states mean any."""

    states: frozenset[ReplayState] = frozenset()
    webhook_id: str | None = None
    account_id: str | None = None
