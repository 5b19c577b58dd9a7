"""The values in the body of an event, as the conditions of rules and grants compare them."""

import json
from functools import cached_property
from typing import Any

from app.domain.rules import Scalar

_TRUE, _FALSE, _NULL = object(), object(), object()


class EventBody:
    """The body of an event, which is parsed once, when its document is first needed."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @cached_property
    def document(self) -> Any:
        """The JSON document; None if the body is not JSON."""
        try:
            return json.loads(self._body)
        except (ValueError, RecursionError):
            return None


def comparable_value(value: Scalar) -> object:
    """A value that compares as JSON does: in Python, True equals 1 and False equals 0."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    return _NULL if value is None else value
