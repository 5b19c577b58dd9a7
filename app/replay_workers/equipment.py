"""What a worker lends to all its jobs."""

from dataclasses import dataclass, field

from app.config import Settings
from app.domain.postponements import Postponements
from app.log.history import LogHistory
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_book import OutcomeBook
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender


@dataclass(frozen=True, slots=True)
class Equipment:
    """Everything that leads out of the process, and what its jobs share.

    `history` looks into the log of what is owed, `outcomes` into that of live deliveries.
    """

    settings: Settings
    store: Store
    history: LogHistory
    outcomes: LogHistory
    guard: Guard
    sender: WebhookSender
    metrics: WorkerMetrics
    book: OutcomeBook
    postponements: Postponements = field(default_factory=Postponements)
