"""Errors of the store, grouped by what the caller can do.

StoreError
├── StoreUnavailable         retry later; the operator checks the database
│   └── SecretUnreadable         the operator configures the key of the secret
├── SecretKeyMissing         the operator configures the keys of the secrets
├── SchemaOutdated           the operator runs `rewind migrate`
├── SchemaUnknown            the operator runs the version that migrated the database
├── NotFound                 use an id that exists and is visible to the caller
│   ├── AccountNotFound
│   ├── WebhookNotFound
│   ├── RuleNotFound
│   ├── GrantNotFound
│   ├── ReplayNotFound
│   ├── NoticeEndpointNotFound
│   └── KeyNotFound
├── Conflict                 the request is valid, but conflicts with the stored state
│   ├── AccountExists            use another name
│   ├── ActiveReplayExists       wait for that replay, or cancel it
│   ├── IdempotencyConflict      use another key
│   ├── IllegalMove              read the replay's state first
│   ├── ReplayNotOver            retry its failures after it has ended
│   ├── NothingToRetry           nothing: the replay has no failures
│   ├── NothingToRestore         nothing: the replay awaits no records
│   ├── TooManyRules             delete some
│   ├── TooManyGrants            delete some
│   ├── TooManyNoticeEndpoints   delete some
│   ├── TooManyConfirmationMails wait for the time in the error
│   ├── TooManyWebhooks          delete some
│   └── TooManyResends           wait until some are sent, or create a replay
└── InvalidCursor            start at the first page
"""

from app.domain.states import ReplayEvent, ReplayState


class StoreError(Exception):
    """The base class."""


class StoreUnavailable(StoreError):
    """The database is unreachable, or was busy for too long."""


class SecretUnreadable(StoreUnavailable):
    """A webhook's secret cannot be decrypted, so nothing can be signed for it."""

    def __init__(self, webhook_id: str, reason: str) -> None:
        super().__init__(f"secret of webhook {webhook_id!r} cannot be decrypted: {reason}")
        self.webhook_id = webhook_id


class SecretKeyMissing(StoreError):
    """No key for the secrets of webhooks is configured, or not all that the database needs."""


class SchemaOutdated(StoreError):
    """The database does not have the schema of this version."""

    def __init__(self, found: str | None, needed: str) -> None:
        super().__init__(f"database schema is {found}; needed is {needed}, run `rewind migrate`")
        self.found = found
        self.needed = needed


class SchemaUnknown(StoreError):
    """A later version of the service has migrated the database."""

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            f"database schema is {found}, which this version does not know; its own is {known}"
        )


class NotFound(StoreError):
    """No row has this id."""


class AccountNotFound(NotFound):
    """No account has this id or name."""

    def __init__(self, account: str) -> None:
        super().__init__(f"account {account!r} does not exist")
        self.account = account


class WebhookNotFound(NotFound):
    """No webhook has this id, or it was deleted."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"webhook {webhook_id!r} does not exist")
        self.webhook_id = webhook_id


class RuleNotFound(NotFound):
    """The webhook has no rule with this name."""

    def __init__(self, webhook_id: str, name: str) -> None:
        super().__init__(f"webhook {webhook_id!r} has no rule {name!r}")
        self.webhook_id = webhook_id
        self.name = name


class GrantNotFound(NotFound):
    """The account has no grant with this name."""

    def __init__(self, account_id: str, name: str) -> None:
        super().__init__(f"account {account_id!r} has no grant {name!r}")
        self.account_id = account_id
        self.name = name


class ReplayNotFound(NotFound):
    """No replay has this id."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"replay {replay_id!r} does not exist")
        self.replay_id = replay_id


class NoticeEndpointNotFound(NotFound):
    """No notice endpoint has this id."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"notice endpoint {endpoint_id!r} does not exist")
        self.endpoint_id = endpoint_id


class KeyNotFound(NotFound):
    """No API key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"API key {key_id!r} does not exist")
        self.key_id = key_id


class Conflict(StoreError):
    """The stored state does not allow the change."""


class AccountExists(Conflict):
    """An account has this name."""

    def __init__(self, name: str, account_id: str) -> None:
        super().__init__(f"account {name!r} exists; its id is {account_id!r}")
        self.name = name
        self.account_id = account_id


class ActiveReplayExists(Conflict):
    """The webhook has an active replay; it can have one at a time."""

    def __init__(self, webhook_id: str, replay_id: str) -> None:
        super().__init__(f"webhook {webhook_id!r} has the active replay {replay_id!r}")
        self.webhook_id = webhook_id
        self.replay_id = replay_id


class IdempotencyConflict(Conflict):
    """The idempotency key was used for another request."""

    def __init__(self, key: str, replay_id: str) -> None:
        super().__init__(
            f"idempotency key {key!r} was used for another request, replay {replay_id!r}"
        )
        self.key = key
        self.replay_id = replay_id


class IllegalMove(Conflict):
    """The state of the replay does not allow the event."""

    def __init__(self, replay_id: str, state: ReplayState, event: ReplayEvent) -> None:
        super().__init__(f"replay {replay_id!r} is {state}: {event} is not possible")
        self.replay_id = replay_id
        self.state = state
        self.event = event


class ReplayNotOver(Conflict):
    """A retry of failures is requested while the replay is active."""

    def __init__(self, replay_id: str, state: ReplayState) -> None:
        super().__init__(
            f"replay {replay_id!r} is {state}: failures can be retried after it has ended"
        )
        self.replay_id = replay_id
        self.state = state


class NothingToRetry(Conflict):
    """The replay has no failures, and reached its end."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"replay {replay_id!r} has no failures to retry, and reached its end")
        self.replay_id = replay_id


class NothingToRestore(Conflict):
    """The replay reads the log, has its records, or has ended."""

    def __init__(self, replay_id: str, state: ReplayState) -> None:
        super().__init__(f"replay {replay_id!r} is {state} and awaits no restore")
        self.replay_id = replay_id
        self.state = state


class TooManyRules(Conflict):
    """A webhook or an account has the maximum of rules, or of what they differ in.

    `owner` names it, such as "webhook 'wh_1'"; `has` says what it has.
    """

    def __init__(self, owner: str, has: str) -> None:
        super().__init__(f"{owner} has {has}; more are not allowed")


class TooManyResends(Conflict):
    """The webhook has as many pending resends as allowed."""

    def __init__(self, webhook_id: str, pending: int) -> None:
        super().__init__(
            f"webhook {webhook_id!r} has {pending} pending resends; a replay sends more events"
        )


class TooManyGrants(Conflict):
    """The account has the maximum of grants, or of kinds of grants; `has` says which."""

    def __init__(self, account_id: str, has: str) -> None:
        super().__init__(f"account {account_id!r} has {has}; more are not allowed")
        self.account_id = account_id


class TooManyNoticeEndpoints(Conflict):
    """The account has the maximum of notice endpoints."""

    def __init__(self, account_id: str, at_most: int) -> None:
        super().__init__(
            f"account {account_id!r} has {at_most} notice endpoints; more are not allowed"
        )
        self.account_id = account_id


class TooManyConfirmationMails(Conflict):
    """The account has caused as many confirmation mails in the last `span_ms` as allowed."""

    def __init__(self, account_id: str, count: int, span_ms: int, wait_ms: int) -> None:
        self.account_id = account_id
        self.retry_after_s = max(1, -(-wait_ms // 1_000))
        super().__init__(
            f"{count} confirmation mails were sent in {span_ms // 3_600_000} h; more are not "
            f"allowed for {self.retry_after_s} s"
        )


class TooManyWebhooks(Conflict):
    """The account has the maximum of webhooks."""

    def __init__(self, account_id: str, at_most: int) -> None:
        super().__init__(f"account {account_id!r} has {at_most} webhooks; more are not allowed")
        self.account_id = account_id


class InvalidCursor(StoreError):
    """The cursor is malformed."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor is {cursor!r}; allowed: the nextCursor of the previous page")
        self.cursor = cursor
