"""The columns of `replays` that hold JSON: options, awaited restore, statuses, failures."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from app.domain.model import AwaitedRestore, Counts
from app.domain.options import Only, ReplayOptions
from app.domain.receiver_failure import ReceiverFailure


def options_to_column(options: ReplayOptions) -> str | None:
    """The value of the column `options`; None if all options have their defaults."""
    if options == ReplayOptions():
        return None
    return json.dumps(
        {
            "eventTypes": options.event_types,
            "only": options.only,
            "maxEventsPerSecond": options.max_events_per_second,
            "maxInFlight": options.max_in_flight,
            "batchSize": options.batch_size,
            "targetUrl": options.target_url,
        }
    )


def options_from_column(value: str | None) -> ReplayOptions:
    """The options that are stored as `value`."""
    if value is None:
        return ReplayOptions()
    stored = json.loads(value)
    # An option added later is missing in older rows: read it with `get` and its default.
    return ReplayOptions(
        event_types=tuple(stored["eventTypes"]),
        only=Only(stored["only"]),
        max_events_per_second=stored["maxEventsPerSecond"],
        max_in_flight=stored["maxInFlight"],
        batch_size=stored["batchSize"],
        target_url=stored["targetUrl"],
    )


def awaits_to_column(awaits: AwaitedRestore | None) -> str | None:
    """The value of the column `awaits`."""
    return None if awaits is None else json.dumps(asdict(awaits))


def awaits_from_column(value: str | None) -> AwaitedRestore | None:
    """The awaited restore that is stored as `value`."""
    return None if value is None else AwaitedRestore(**json.loads(value))


def status_counts_to_column(counts: Mapping[str, int] | None) -> str | None:
    """The value of the column `status_counts`."""
    return None if counts is None else json.dumps(counts, sort_keys=True)


def status_counts_from_column(value: str | None, counts: Counts) -> Mapping[str, int] | None:
    """The counts by HTTP status; None if they do not add up to `counts`.

    A worker of the previous version updates `counts` without the counts by status.
    """
    by_status: dict[str, int] = {} if value is None else json.loads(value)
    is_complete = sum(by_status.values()) == counts.delivered + counts.failed
    return by_status if is_complete else None


def receiver_failure_to_column(failure: ReceiverFailure | None) -> str | None:
    """The value of the column `receiver_failure`."""
    return None if failure is None else json.dumps(asdict(failure))


def receiver_failure_from_column(value: str | None) -> ReceiverFailure | None:
    """The series of failures that is stored as `value`."""
    return None if value is None else ReceiverFailure(**json.loads(value))
