"""What a replay waits for as its column holds it: JSON, NULL for nothing."""

import json
from dataclasses import asdict

from app.domain.model import AwaitedRestore


def to_column(awaits: AwaitedRestore | None) -> str | None:
    """What is stored for `awaits`."""
    return None if awaits is None else json.dumps(asdict(awaits))


def of_column(value: str | None) -> AwaitedRestore | None:
    """What is stored as `value`."""
    return None if value is None else AwaitedRestore(**json.loads(value))
