"""What events were answered with, as its column holds it: JSON, NULL where it was not noted."""

import json
from collections.abc import Mapping

from app.domain.model import Counts


def to_column(statuses: Mapping[str, int] | None) -> str | None:
    """What is stored for `statuses`."""
    return None if statuses is None else json.dumps(statuses, sort_keys=True)


def of_column(value: str | None, counts: Counts) -> Mapping[str, int] | None:
    """The answers to what `counts` counts; None if `value` is not of all of it.

    A worker of the version before goes on counting without a note of the answers.
    """
    statuses: dict[str, int] = {} if value is None else json.loads(value)
    is_whole = sum(statuses.values()) == counts.delivered + counts.failed
    return statuses if is_whole else None
