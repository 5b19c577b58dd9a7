"""The store: every question to the database and every change of it, as one call each."""

from collections.abc import Sequence
from typing import Self

from app.domain.lateness import LateSpan
from app.domain.model import Window
from app.store import late_arrivals
from app.store.engine import Database
from app.store.errors import SchemaOutdated
from app.store.job_calls import ReplayCalls, WorkerCalls
from app.store.pipeline_calls import PipelineCalls
from app.store.schema import found_revision
from app.store.selection_calls import SelectionCalls
from app.store.tables import REVISION
from app.store.tenant_calls import KeyCalls, RuleCalls, WebhookCalls
from app.store.watch_calls import WatchCalls


class Store(
    KeyCalls,
    WebhookCalls,
    RuleCalls,
    ReplayCalls,
    SelectionCalls,
    WorkerCalls,
    PipelineCalls,
    WatchCalls,
):
    """What the service remembers, in one database. Thread-safe; every call is a transaction.

    Calls block: a coroutine hands them to a thread. Every one raises `StoreUnavailable` when
    the database does not answer. Methods that take a `Lease` answer False when it is gone:
    the replay was taken over, cancelled or finished, and its former holder stops.
    """

    @classmethod
    def open(cls, url: str) -> Self:
        """A store on `url`, sqlite:///FILE or mysql+pymysql://...; connects when first used."""
        return cls(Database(url))

    def close(self) -> None:
        """Close all connections; calls that still run end first."""
        self._database.close()

    def check(self) -> None:
        """Pass if the database answers and has the schema of this version.

        Raises:
            SchemaOutdated: it has another one.
        """
        found = self._database.read(found_revision)
        if found != REVISION:
            raise SchemaOutdated(found, REVISION)

    def note_late_arrivals(
        self, spans: Sequence[LateSpan], retention_ms: int, *, origin: str
    ) -> None:
        """Store where late events lie in the log of a data centre.

        Spans older than a log keeps events are forgotten.
        """
        self._database.write(lambda db: late_arrivals.note(db, spans, retention_ms, origin))

    def late_end(self, partition: int, window: Window, *, origin: str) -> int | None:
        """The offset that all late events of the window lie below; None when there are none.

        In the log of a data centre; notes of nobody in particular count as well.
        """
        return self._database.read(lambda db: late_arrivals.end(db, partition, window, origin))

    def late_noted_ms(self, partition: int, window: Window, *, origin: str) -> int | None:
        """When the last late event of the window was noted; None when there are none."""
        return self._database.read(lambda db: late_arrivals.noted_ms(db, partition, window, origin))
