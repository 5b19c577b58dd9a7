"""The options of a webhook as text, which is encrypted because of the credentials in it.

The column is NULL without options. Otherwise it holds a JSON object with the members `headers`,
`authentication` (with its `type`), `timeoutSeconds`, `maxEventsPerSecond`, `maxInFlight` and, if
it was stored by a version that has them, `retrySchedule` and `ordering`.
"""

import json
from dataclasses import asdict
from typing import Any, Final

from app.domain.endpoint_options import (
    NO_OPTIONS,
    Authentication,
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    EndpointOptions,
    Ordering,
)

_TYPES: Final[dict[str, type[Authentication]]] = {
    "basic": BasicAuthentication,
    "bearer": BearerAuthentication,
    "oauth2": ClientCredentials,
}
_NAMES: Final = {cls: name for name, cls in _TYPES.items()}


def encode_options(options: EndpointOptions) -> str | None:
    """The text to encrypt; None if there are no options."""
    if options == NO_OPTIONS:
        return None
    authentication: dict[str, Any] | None = None
    if options.authentication is not None:
        name = _NAMES[type(options.authentication)]
        authentication = {"type": name, **asdict(options.authentication)}
    value = {
        "headers": dict(options.headers),
        "authentication": authentication,
        "timeoutSeconds": options.timeout_s,
        "maxEventsPerSecond": options.max_events_per_second,
        "maxInFlight": options.max_in_flight,
        "retrySchedule": options.retry_schedule_s,
        "ordering": str(options.ordering),
    }
    return json.dumps(value, ensure_ascii=False)


def decode_options(text: str) -> EndpointOptions:
    """The options in a decrypted text."""
    value = json.loads(text)
    authentication, schedule = value["authentication"], value.get("retrySchedule")
    if authentication is not None:
        authentication = _TYPES[authentication.pop("type")](**authentication)
    return EndpointOptions(
        value["headers"],
        authentication,
        value["timeoutSeconds"],
        value["maxEventsPerSecond"],
        value["maxInFlight"],
        None if schedule is None else tuple(schedule),
        Ordering(value.get("ordering", Ordering.NONE)),
    )
