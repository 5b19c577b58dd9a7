"""Audit log lines for changes that commands make to the database directly."""

import os

from app.audit_log import record_change
from app.domain.accounts import ApiKey


def log_key_change(action: str, key: ApiKey) -> None:
    """Log that the user of this process created or revoked a key."""
    record_change(action, key.id, account_id=key.account.id, scope=key.scope, uid=os.getuid())
