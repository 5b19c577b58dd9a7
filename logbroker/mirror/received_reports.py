"""Reports to the audit at the source what the mirror has copied."""

import time
from typing import Final

from logbroker.client.audit_reporter import AuditProducer
from logbroker.client.received_counter import ReceivedCounter
from logbroker.mirror.clients import CLIENT_LOG, error_callback, producer_settings
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.settings import Cluster

REFUSED: Final = "audit_reports_refused"
"""The reason in `errors_total` for a report that `audit` rejects."""

DROPPED: Final = "audit_reports_dropped"
"""The reason in `errors_total` for dropped reports, which the audit shows as a loss."""

FINISH_S: Final = 3.0
"""How long `finish` waits: a rebalance and a shutdown wait for it."""

BYTES_MAX: Final = 64 * 1024 * 1024
"""Rejected reports that are kept for a retry; half of what the producer holds at once."""


class MirrorReports(AuditProducer):
    """Counts what the mirror copied, and reports it; for the mirror's thread only.

    After `start`, positions may be committed once `is_settled`. Rejected reports hold nothing up:
    they are kept and retried. Meanwhile the counter continues, which needs less memory.
    """

    def __init__(self, source: Cluster, counter: ReceivedCounter, counts: MirrorCounts) -> None:
        super().__init__(
            source.servers,
            client_settings=producer_settings(source.servers, source.properties)
            | {"error_cb": error_callback("source", counts.record_error)},
            on_dropped=lambda _count: counts.record_error(DROPPED),
            on_refused=lambda _reason: counts.record_error(REFUSED),
            bytes_max=BYTES_MAX,
            logger=CLIENT_LOG,
        )
        self.counter = counter

    def start(self) -> None:
        """Report what was counted up to now, unless reports are rejected and there is room."""
        if not self.is_refused or self.counter.is_full:
            self.add(self.counter.take_reports())
        self.retry(time.monotonic())

    def is_settled(self) -> bool:
        """Whether no report is in flight."""
        self.poll()
        return not self.in_flight

    def finish(self) -> bool:
        """Report now, retry rejected reports, and wait; return whether no report is in flight."""
        end_s = time.monotonic() + FINISH_S
        self.flush(FINISH_S)
        if self.in_flight:
            return False
        self.add(self.counter.take_reports())
        self.flush(max(0.0, end_s - time.monotonic()))
        return not self.in_flight

    def close(self) -> None:
        """Make a last attempt, and log what is lost."""
        self.finish()
        super().close()
