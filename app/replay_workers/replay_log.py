"""Log lines about one replay."""

import logging
from typing import Final

from app.domain.model import Claim

_log: Final = logging.getLogger("app.replay_workers")


class ReplayLog:
    """Logs events of one replay with its id, webhook and lease epoch."""

    def __init__(self, claim: Claim) -> None:
        self._identity: dict[str, object] = {
            "replay": claim.lease.replay_id,
            "webhook": claim.webhook.id,
            "epoch": claim.lease.epoch,
        }

    def info(self, event: str, **fields: object) -> None:
        """Log an event."""
        _log.info(event, extra=self._identity | fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log an event that an operator should check."""
        _log.warning(event, extra=self._identity | fields)

    def exception(self, event: str, error: BaseException) -> None:
        """Log an unexpected error with its traceback."""
        _log.error(event, extra=self._identity, exc_info=error)
