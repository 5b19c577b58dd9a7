"""The database: API keys, webhooks, rules, replays and their leases. Only this package uses SQL."""

from app.store.errors import (
    ActiveReplayExists,
    Conflict,
    IdempotencyConflict,
    IllegalMove,
    InvalidCursor,
    KeyNotFound,
    NotFound,
    NothingToRestore,
    NothingToRetry,
    ReplayNotFound,
    ReplayNotOver,
    RuleNotFound,
    SchemaOutdated,
    SchemaUnknown,
    StoreError,
    StoreUnavailable,
    TooManyRules,
    TooManyWebhooks,
    WebhookNotFound,
)
from app.store.pages import Page
from app.store.schema import is_migrated, migrate
from app.store.store import Store

__all__ = [
    "ActiveReplayExists",
    "Conflict",
    "IdempotencyConflict",
    "IllegalMove",
    "InvalidCursor",
    "KeyNotFound",
    "NotFound",
    "NothingToRestore",
    "NothingToRetry",
    "Page",
    "ReplayNotFound",
    "ReplayNotOver",
    "RuleNotFound",
    "SchemaOutdated",
    "SchemaUnknown",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "TooManyRules",
    "TooManyWebhooks",
    "WebhookNotFound",
    "is_migrated",
    "migrate",
]
