"""Every error of the store, grouped by what the one who meets it can do.

StoreError
├── StoreUnavailable         try again later; the operator looks at the database
├── SchemaOutdated           the operator runs `rewind migrate`
├── SchemaUnknown            the operator runs the version that migrated it
├── NotFound                 ask for something that is there
│   ├── WebhookNotFound
│   └── ReplayNotFound
├── Conflict                 the request is sound, but what is there stands against it
│   ├── ActiveReplayExists       wait for that replay, or cancel it
│   ├── IdempotencyConflict      choose another key
│   └── NotCancellable           nothing: it is over already
└── InvalidCursor            start the list anew
"""

from app.replay.states import ReplayState


class StoreError(Exception):
    """The root: nothing raises it as such."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or was busy for longer than the store waits."""


class SchemaOutdated(StoreError):
    """The database lacks migrations that this version needs, or has ones it does not know."""

    def __init__(self, found: str | None, needed: str) -> None:
        super().__init__(f"database schema is {found}; needed is {needed}, run `rewind migrate`")
        self.found = found
        self.needed = needed


class SchemaUnknown(StoreError):
    """A later version of the service has migrated the database."""

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            f"database schema is {found}, which this version does not know; the last it knows "
            f"is {known}"
        )


class NotFound(StoreError):
    """No row has this id."""


class WebhookNotFound(NotFound):
    """No webhook has this id, or it was deleted."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"webhook {webhook_id!r} does not exist")
        self.webhook_id = webhook_id


class ReplayNotFound(NotFound):
    """No replay has this id."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"replay {replay_id!r} does not exist")
        self.replay_id = replay_id


class Conflict(StoreError):
    """What the database holds does not allow the change."""


class ActiveReplayExists(Conflict):
    """The webhook has a replay that is not over; a second one would deliver in between."""

    def __init__(self, webhook_id: str, replay_id: str) -> None:
        super().__init__(f"webhook {webhook_id!r} has the active replay {replay_id!r}")
        self.webhook_id = webhook_id
        self.replay_id = replay_id


class IdempotencyConflict(Conflict):
    """An idempotency key was used before, for another request."""

    def __init__(self, key: str, replay_id: str) -> None:
        super().__init__(f"idempotency key {key!r} named another request, replay {replay_id!r}")
        self.key = key
        self.replay_id = replay_id


class NotCancellable(Conflict):
    """The replay is over."""

    def __init__(self, replay_id: str, state: ReplayState) -> None:
        super().__init__(f"replay {replay_id!r} is {state}, it cannot be cancelled any more")
        self.replay_id = replay_id
        self.state = state


class InvalidCursor(StoreError):
    """A cursor that no list of this store gave out."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor is {cursor!r}; allowed is the nextCursor of a page before")
        self.cursor = cursor
