"""The options of a replay as its column holds them: JSON in camelCase, NULL for all defaults."""

import json

from app.domain.options import Only, ReplayOptions


def to_column(options: ReplayOptions) -> str | None:
    """What is stored for `options`."""
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


def of_column(value: str | None) -> ReplayOptions:
    """The options that are stored as `value`."""
    if value is None:
        return ReplayOptions()
    stored = json.loads(value)
    return ReplayOptions(
        event_types=tuple(stored["eventTypes"]),
        only=Only(stored["only"]),
        max_events_per_second=stored["maxEventsPerSecond"],
        max_in_flight=stored["maxInFlight"],
        batch_size=stored["batchSize"],
        target_url=stored["targetUrl"],
    )
