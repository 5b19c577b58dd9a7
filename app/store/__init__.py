"""The only door to the database: webhooks, replays and their leases."""

from app.store.errors import (
    ActiveReplayExists,
    Conflict,
    IdempotencyConflict,
    InvalidCursor,
    NotCancellable,
    NotFound,
    ReplayNotFound,
    SchemaOutdated,
    SchemaUnknown,
    StoreError,
    StoreUnavailable,
    WebhookNotFound,
)
from app.store.pages import Page
from app.store.schema import is_migrated, migrate
from app.store.store import Store

__all__ = [
    "ActiveReplayExists",
    "Conflict",
    "IdempotencyConflict",
    "InvalidCursor",
    "NotCancellable",
    "NotFound",
    "Page",
    "ReplayNotFound",
    "SchemaOutdated",
    "SchemaUnknown",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "WebhookNotFound",
    "is_migrated",
    "migrate",
]
