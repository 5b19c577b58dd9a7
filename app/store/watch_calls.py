"""The store as those see it who watch the service: who is at work, and how receivers fare."""

from collections.abc import Collection, Sequence

from app.domain.missed import MissedHour
from app.domain.presence import Details, Process, ProcessKind
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store import processes, tallies
from app.store.calls import Calls


class WatchCalls(Calls):
    """What processes tell of themselves and of deliveries, and who asks for it.

    `of_account` is the account that asks; None may see all. All that take it raise
    `WebhookNotFound` for a webhook that never was, was deleted, or is another account's.
    """

    def be_present(
        self, kind: ProcessKind, name: str, origin: str, started_ms: int, details: Details
    ) -> None:
        """Say that a process lives, again every `BEAT_S`; see `Process`."""
        self._database.write_one(
            lambda db: processes.beat(db, kind, name, origin, started_ms, details)
        )

    def leave(self, kind: ProcessKind, name: str) -> None:
        """Say that a process ends: nobody is to miss it."""
        self._database.write_one(lambda db: processes.leave(db, kind, name))

    def forget_silent_processes(self) -> None:
        """Forget those that fell silent a day ago."""
        self._database.write_one(processes.forget_silent)

    def processes(self) -> tuple[Process, ...]:
        """Those that were heard of within a day, by kind and name."""
        return self._database.read(processes.known)

    def add_tallies(self, counted: Sequence[CountedTally], *, origin: str) -> None:
        """Add what a data centre has counted; `tallies.ROWS_PER_ADD` at most, none twice.

        A call that fails may have been done all the same: what is then added again counts double.
        """
        self._database.write(lambda db: tallies.add(db, counted, origin))

    def tallies(
        self, webhook_id: str, span: Span, from_ms: int, *, of_account: str | None = None
    ) -> tuple[DeliveryTally, ...]:
        """The tallies of a webhook that begin at `from_ms` or later, the earliest first.

        Of all data centres together; a stretch in which nothing was counted has none.
        """
        return self._database.read(
            lambda db: tallies.of_webhook(db, webhook_id, span, from_ms, of_account)
        )

    def tallies_of(
        self, webhook_ids: Collection[str], span: Span, from_ms: int
    ) -> dict[str, DeliveryTally]:
        """One tally of each webhook, of all that begin at `from_ms` or later, in one query.

        For up to 500 webhooks that the caller has seen already; one without any is left out.
        """
        return self._database.read(lambda db: tallies.of_webhooks(db, webhook_ids, span, from_ms))

    def missed_hours(
        self, webhook_id: str, from_ms: int, *, of_account: str | None = None
    ) -> tuple[MissedHour, ...]:
        """The whole hours of event time since `from_ms` in which the webhook missed events."""
        return self._database.read(lambda db: tallies.missed(db, webhook_id, from_ms, of_account))

    def forget_tallies(self, span: Span, before_ms: int) -> bool:
        """Delete some of the tallies that begin before `before_ms`; whether there may be more."""
        deleted = self._database.write(lambda db: tallies.forget(db, span, before_ms))
        return deleted == tallies.FORGOTTEN_PER_CALL
