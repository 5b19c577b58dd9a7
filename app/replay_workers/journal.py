"""One line of log for each thing that happens to a replay."""

import logging
from typing import Final

from app.domain.model import Claim, Webhook

_log: Final = logging.getLogger("app.replay_workers")
_audit: Final = logging.getLogger("rewind.audit")


class Journal:
    """Writes the lines of one replay: the event, whose it is, and what belongs to it."""

    def __init__(self, claim: Claim) -> None:
        self._identity: dict[str, object] = {
            "replay": claim.lease.replay_id,
            "webhook": claim.webhook.id,
            "epoch": claim.lease.epoch,
        }

    def note(self, event: str, **fields: object) -> None:
        """Note what happened."""
        _log.info(event, extra=self._identity | fields)

    def warn(self, event: str, **fields: object) -> None:
        """Note what an operator may want to look at."""
        _log.warning(event, extra=self._identity | fields)

    def trace(self, event: str, error: BaseException, **fields: object) -> None:
        """Note what should not have happened, with its traceback."""
        _log.error(event, extra=self._identity | fields, exc_info=error)

    def audit(self, action: str, webhook: Webhook, reason: str) -> None:
        """Note a change of a webhook that nobody asked for: what its answers led to."""
        _audit.info(
            "change",
            extra={
                "key_id": None,
                "account_id": webhook.account_id,
                "action": action,
                "target": webhook.id,
                "status": None,
                "client": None,
                "reason": reason,
                "replay": self._identity["replay"],
            },
        )
