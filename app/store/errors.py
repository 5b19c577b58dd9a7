"""Every error of the store, grouped by what the one who meets it can do.

StoreError
├── StoreUnavailable         try again later; the operator looks at the database
├── SchemaOutdated           the operator runs `rewind migrate`
├── SchemaUnknown            the operator runs the version that migrated it
├── NotFound                 ask for something that is there, and yours
│   ├── AccountNotFound
│   ├── WebhookNotFound
│   ├── RuleNotFound
│   ├── ReplayNotFound
│   └── KeyNotFound
├── Conflict                 the request is sound, but what is there stands against it
│   ├── ActiveReplayExists       wait for that replay, or cancel it
│   ├── IdempotencyConflict      choose another key
│   ├── IllegalMove              look at the replay's state first
│   ├── ReplayNotOver            wait for its end before its failures are tried again
│   ├── NothingToRetry           nothing: the replay gave nothing up
│   ├── NothingToRestore         nothing: the replay waits for no records
│   ├── TooManyRules             delete some
│   └── TooManyWebhooks          delete some
└── InvalidCursor            start the list anew
"""

from app.domain.states import ReplayEvent, ReplayState


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


class AccountNotFound(NotFound):
    """No account has this id."""

    def __init__(self, account_id: str) -> None:
        super().__init__(f"account {account_id!r} does not exist")
        self.account_id = account_id


class WebhookNotFound(NotFound):
    """No webhook has this id, or it was deleted."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"webhook {webhook_id!r} does not exist")
        self.webhook_id = webhook_id


class RuleNotFound(NotFound):
    """The webhook has no rule of this name."""

    def __init__(self, webhook_id: str, name: str) -> None:
        super().__init__(f"webhook {webhook_id!r} has no rule {name!r}")
        self.webhook_id = webhook_id
        self.name = name


class ReplayNotFound(NotFound):
    """No replay has this id."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"replay {replay_id!r} does not exist")
        self.replay_id = replay_id


class KeyNotFound(NotFound):
    """No API key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"API key {key_id!r} does not exist")
        self.key_id = key_id


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


class IllegalMove(Conflict):
    """The replay is in a state that knows no such event: it is over, or paused, or not."""

    def __init__(self, replay_id: str, state: ReplayState, event: ReplayEvent) -> None:
        super().__init__(f"replay {replay_id!r} is {state}: {event} is not possible")
        self.replay_id = replay_id
        self.state = state
        self.event = event


class ReplayNotOver(Conflict):
    """The failures of a replay are asked for again while more may come."""

    def __init__(self, replay_id: str, state: ReplayState) -> None:
        super().__init__(f"replay {replay_id!r} is {state}: it must be over to be tried again")
        self.replay_id = replay_id
        self.state = state


class NothingToRetry(Conflict):
    """The replay has no failures."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"replay {replay_id!r} has no failures to try again")
        self.replay_id = replay_id


class NothingToRestore(Conflict):
    """The replay reads the log, has its records, or is over."""

    def __init__(self, replay_id: str, state: ReplayState) -> None:
        super().__init__(f"replay {replay_id!r} is {state} and waits for no records to be restored")
        self.replay_id = replay_id
        self.state = state


class TooManyRules(Conflict):
    """The webhook has as many rules as it may have, or as many kinds of them: `has` says which."""

    def __init__(self, webhook_id: str, has: str) -> None:
        super().__init__(f"webhook {webhook_id!r} has {has}; more are not allowed")
        self.webhook_id = webhook_id


class TooManyWebhooks(Conflict):
    """The account has as many webhooks as it may have."""

    def __init__(self, account_id: str, at_most: int) -> None:
        super().__init__(f"account {account_id!r} has {at_most} webhooks; more are not allowed")
        self.account_id = account_id


class InvalidCursor(StoreError):
    """A cursor that no list of this store gave out."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor is {cursor!r}; allowed is the nextCursor of a page before")
        self.cursor = cursor
