"""The values in the body of an event, as the conditions of rules and grants compare them."""

import json
from typing import Any

from app.domain.rules import Scalar

_TRUE, _FALSE, _NULL = object(), object(), object()


def parse_body(body: bytes) -> Any:
    """The JSON document of a body; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def comparable_value(value: Scalar) -> object:
    """A value that compares as JSON does: in Python, True equals 1 and False equals 0."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    return _NULL if value is None else value
