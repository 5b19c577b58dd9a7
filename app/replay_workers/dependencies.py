"""What all replays of a worker process share."""

from dataclasses import dataclass, field

from app.config import Settings
from app.delivery.attempt import AttemptSender
from app.domain.postponements import Postponements
from app.log.history import LogHistory
from app.log.reader_clients import ReaderClients
from app.log.replay_requests import ReplayRequestPublisher
from app.mail.mailer import Mailer
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_publisher import OutcomePublisher
from app.replay_workers.work_watch import WorkWatch
from app.store import Store
from app.webhooks.guard import Guard


@dataclass(frozen=True, slots=True)
class WorkerDependencies:
    """Connections to store, log and receivers, and state that replays share.

    `history` looks up offsets in `delivery_log`, `outcomes` in `delivery_outcomes`.
    """

    settings: Settings
    store: Store
    work: WorkWatch
    history: LogHistory
    outcomes: LogHistory
    clients: ReaderClients
    requests: ReplayRequestPublisher
    guard: Guard
    attempts: AttemptSender
    metrics: WorkerMetrics
    outcome_publisher: OutcomePublisher
    mailer: Mailer | None = None
    postponements: Postponements = field(default_factory=Postponements)
