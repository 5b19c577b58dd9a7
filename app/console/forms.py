"""What forms bring: fields as text, bounded, and checked for where they came from."""

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request

from app.api.problems import INVALID_REQUEST, MEDIA_TYPE_REFUSED, FieldError, Problem
from app.console.gate import ViewerDependency, check_change

FORM_TYPE: Final = "application/x-www-form-urlencoded"

FIELDS_MAX: Final = 600
"""Five hundred rows that are ticked, and what stands around them."""


class Form:
    """The fields of a form; what is missing is empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        """The last value of a field, without spaces around it."""
        values = self._fields.get(name)
        return values[-1].strip() if values else ""

    def all(self, name: str) -> list[str]:
        """Every value of a field, in the order of the page."""
        return self._fields.get(name, [])


async def read_form(request: Request) -> Form:
    """The form that a request brings.

    Raises:
        Problem: its body is none.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if media_type != FORM_TYPE:
        refused = FieldError("content-type", media_type, FORM_TYPE)
        raise Problem.of_fields(MEDIA_TYPE_REFUSED, [refused])
    try:
        text = (await request.body()).decode()
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        refused = FieldError("body", None, f"a form of at most {FIELDS_MAX} fields, in UTF-8")
        raise Problem.of_fields(INVALID_REQUEST, [refused]) from None


async def _change(request: Request, viewer: ViewerDependency) -> Form:
    form = await read_form(request)
    check_change(request, viewer, form["csrf"])
    return form


ChangeForm = Annotated[Form, Depends(_change)]
"""A form by which a viewer who may do so changes something."""
