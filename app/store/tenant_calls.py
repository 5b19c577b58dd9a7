"""The store as tenants see it: keys, webhooks with their rules, and what follows from them."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from app.domain.accounts import ApiKey, Scope
from app.domain.model import NewWebhook, Webhook, WebhookStatus
from app.domain.rules import DEFAULT_RULE, RoutingChanges, Rule
from app.store import accounts, console_sessions, owner_moves, routing, rules, webhooks
from app.store.calls import Calls
from app.store.pages import PAGE_LIMIT, Page


class KeyCalls(Calls):
    """Who may ask."""

    def create_key(
        self, account_name: str, scope: Scope, description: str, *, is_read_only: bool = False
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which is stored nowhere; its account is made if it is missing."""
        return self._database.write(
            lambda db: accounts.create_key(db, account_name, scope, description, is_read_only)
        )

    def key_of(self, token: str) -> ApiKey | None:
        """The key with this text; None when there is none, or it was revoked."""
        return self._database.read(lambda db: accounts.key_of(db, token))

    def check_account(self, account_id: str) -> None:
        """Return when there is such an account; none is ever deleted.

        Raises:
            AccountNotFound: there is none.
        """
        self._database.read(lambda db: accounts.check(db, account_id))

    def keys(self) -> tuple[ApiKey, ...]:
        """Every key, also the revoked ones, the oldest first."""
        return self._database.read(accounts.all_keys)

    def open_session(self, key_id: str, token: str, duration_s: float) -> None:
        """Let `token`, which only its owner knows, stand for the key for so long."""
        self._database.write(lambda db: console_sessions.open(db, key_id, token, duration_s))

    def session_key(self, token: str) -> ApiKey | None:
        """The key that `token` stands for; None once that is over, or the key revoked."""
        return self._database.read(lambda db: console_sessions.key_of(db, token))

    def close_session(self, token: str) -> None:
        """Let `token` stand for nothing any more."""
        self._database.write(lambda db: console_sessions.close(db, token))

    def revoke_key(self, key_id: str) -> ApiKey:
        """The key, which opens nothing from now on.

        Raises:
            KeyNotFound: no key has this id.
        """
        return self._database.write(lambda db: accounts.revoke_key(db, key_id))


class WebhookCalls(Calls):
    """Where events are to be sent. Each change counts the revision of the routing table up.

    `of_account` is the account that asks; None may see all. All that take an id raise
    `WebhookNotFound` for one that never was, was deleted, or is another account's.
    """

    def create_webhook(
        self, new: NewWebhook, *, at_most: int | None = None, event_types: Sequence[str] = ()
    ) -> Webhook:
        """The webhook, with an id of its own, PENDING; with `event_types`, a rule that wants them.

        Raises:
            TooManyWebhooks: its account has `at_most` already.
        """

        def work(db: Connection) -> Webhook:
            revision = routing.count_up(db)
            webhook = webhooks.create(db, new, revision, at_most)
            if event_types:
                rule = Rule(webhook.id, DEFAULT_RULE, tuple(event_types))
                rules.put(db, rule, revision, None)
            return webhook

        return self._database.write(work)

    def webhook(self, webhook_id: str, *, of_account: str | None = None) -> Webhook:
        """The webhook of this id."""
        return self._database.read(lambda db: webhooks.get(db, webhook_id, of_account))

    def webhooks(
        self,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
        *,
        status: WebhookStatus | None = None,
        of_account: str | None = None,
    ) -> Page[Webhook]:
        """A page of the webhooks, of one status or all, the latest first.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(
            lambda db: webhooks.newest(db, status, cursor, limit, of_account)
        )

    def unknown_webhooks(self, webhook_ids: Collection[str]) -> set[str]:
        """Those of the ids that no webhook has."""
        return self._database.read(lambda db: webhooks.unknown(db, webhook_ids))

    def update_webhook(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        description: str | None = None,
        of_account: str | None = None,
    ) -> Webhook:
        """The webhook with what is not None changed; at another URL it is PENDING."""
        return self._database.write(
            lambda db: webhooks.change(
                db, webhook_id, url, description, routing.count_up(db), of_account
            )
        )

    def enable_webhook(self, webhook_id: str, url: str) -> Webhook:
        """The webhook, ENABLED, since its owner proved `url`; as it is when at another by now."""
        return self._database.write(
            lambda db: webhooks.enable(db, webhook_id, url, routing.count_up(db))
        )

    def refuse_webhook(self, webhook_id: str, url: str, reason: str) -> Webhook:
        """The webhook, with why `url` was not proved as the reason that it is not ENABLED.

        As it is when it is ENABLED, or at another URL by now.
        """
        return self._database.write(
            lambda db: webhooks.refuse(db, webhook_id, url, reason, routing.count_up(db))
        )

    def disable_webhook(
        self,
        webhook_id: str,
        reason: str,
        *,
        at_url: str | None = None,
        of_account: str | None = None,
    ) -> Webhook:
        """The webhook, DISABLED because of `reason`.

        As it is when the receiver that gave the reason was at `at_url`, and the webhook is at
        another URL by now.
        """
        return self._database.write(
            lambda db: webhooks.disable(
                db, webhook_id, reason, at_url, routing.count_up(db), of_account
            )
        )

    def rotate_secret(
        self, webhook_id: str, secret: str, grace_ms: int, *, of_account: str | None = None
    ) -> Webhook:
        """The webhook with a new secret; the one before it signs as well for `grace_ms`.

        An older one than that signs nothing any more.
        """
        return self._database.write(
            lambda db: webhooks.rotate_secret(
                db, webhook_id, secret, grace_ms, routing.count_up(db), of_account
            )
        )

    def note_failing(self, webhook_id: str, since_ms: int | None) -> None:
        """Store since when its receiver takes nothing, None once it takes again.

        No change of the routing table; nothing happens when the webhook is gone.
        """
        self._database.write_one(lambda db: webhooks.note_failing(db, webhook_id, since_ms))

    def delete_webhook(
        self, webhook_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> None:
        """Delete the webhook with its rules, and cancel its replay if one is active.

        Who deletes a webhook wants nothing sent to it any more, from now on and in one step;
        a refusal would keep events flowing until its owner has found and cancelled the job.
        Replays of the past stay to be looked at. `actor` is the id of the key that asks.
        """

        def work(db: Connection) -> None:
            revision = routing.count_up(db)
            webhooks.delete(db, webhook_id, revision, of_account)
            rules.delete_all_of(db, webhook_id, revision)
            routing.forget_deleted(db)
            owner_moves.cancel_active_of(db, webhook_id, actor)

        self._database.write(work)


class RuleCalls(Calls):
    """Which webhook wants which events. All raise `WebhookNotFound` as `WebhookCalls` do."""

    def put_rule(self, rule: Rule, *, of_account: str | None = None) -> tuple[Rule, bool]:
        """The rule, and whether it is new; one of the same name is replaced.

        Raises:
            TooManyRules: the webhook has as many as it may have, or as many kinds of them.
        """
        is_new = self._database.write(
            lambda db: rules.put(db, rule, routing.count_up(db), of_account)
        )
        return rule, is_new

    def rule(self, webhook_id: str, name: str, *, of_account: str | None = None) -> Rule:
        """The rule of this name.

        Raises:
            RuleNotFound: there is none.
        """
        return self._database.read(lambda db: rules.get(db, webhook_id, name, of_account))

    def rules(
        self,
        webhook_id: str,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
        *,
        of_account: str | None = None,
    ) -> Page[Rule]:
        """A page of the webhook's rules, by name.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(
            lambda db: rules.by_name(db, webhook_id, cursor, limit, of_account)
        )

    def delete_rule(self, webhook_id: str, name: str, *, of_account: str | None = None) -> None:
        """Delete the rule of this name.

        Raises:
            RuleNotFound: there is none.
        """

        def work(db: Connection) -> None:
            rules.delete(db, webhook_id, name, routing.count_up(db), of_account)
            routing.forget_deleted(db)

        self._database.write(work)

    def routing_changes(self, after: int) -> RoutingChanges:
        """What changed in the routing table since the revision `after`; 0 gives all of it.

        Cheap when nothing did, so that it may be asked every second.
        """
        return self._database.read(lambda db: routing.changes(db, after))
