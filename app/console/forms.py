"""Submitted forms: parsing, and validation errors by field."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import parse_qs

from fastapi import Request
from pydantic import BaseModel, ValidationError

from app.http.error_table import EXPECTED_ERRORS, problem_of
from app.http.problems import INVALID_REQUEST, MEDIA_TYPE_REFUSED, Problem, field_errors
from app.services.errors import FieldError

FORM_TYPE: Final = "application/x-www-form-urlencoded"

FIELDS_MAX: Final = 600
"""Five hundred selected rows, and the other fields of their form."""

REJECTIONS: Final = EXPECTED_ERRORS
"""Exceptions of use cases that `form_rejection` can show in a form."""

Body = TypeVar("Body", bound=BaseModel)


class Form:
    """The fields of a form. Missing fields are empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        """Return the last value of a field, stripped."""
        values = self._fields.get(name)
        return values[-1].strip() if values else ""

    def all(self, name: str) -> list[str]:
        """Return every value of a field, in the order of the page."""
        return self._fields.get(name, [])


@dataclass(frozen=True, slots=True)
class FormRejection:
    """Why a form was rejected: errors by field name in `fields`, everything else in `words`."""

    status: int
    words: str
    fields: Mapping[str, str] = field(default_factory=dict)


async def read_form(request: Request) -> Form:
    """Return the form in the body of a request.

    Raises:
        Problem: the body is not a form.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if media_type != FORM_TYPE:
        error = FieldError("content-type", media_type, FORM_TYPE)
        raise Problem.of_fields(MEDIA_TYPE_REFUSED, [error])
    try:
        text = (await request.body()).decode()
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        error = FieldError("body", None, f"a form of at most {FIELDS_MAX} fields, in UTF-8")
        raise Problem.of_fields(INVALID_REQUEST, [error]) from None


def parse_body(model: type[Body], given: Mapping[str, object]) -> Body:
    """Return the API request body with the values of a form.

    Raises:
        Problem: a value is invalid; the error texts are the API's.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise Problem.of_fields(INVALID_REQUEST, field_errors(error.errors())) from None


def form_rejection(error: Exception, names: Collection[str]) -> FormRejection:
    """Return how a form with fields of these names shows one of `REJECTIONS`.

    Server errors are raised again, for the error page.
    """
    problem = problem_of(error)
    if problem.kind.status >= 500:
        raise error
    fields: dict[str, list[str]] = {}
    elsewhere: list[str] = []
    for each in problem.errors:
        # Such as `eventTypes[3]`, or `url.host`.
        name = each.field.partition("[")[0].partition(".")[0]
        target = fields.setdefault(name, []) if name in names else elsewhere
        target.append(each.sentence())
    by_field = {name: "; ".join(sentences) for name, sentences in fields.items()}
    sentences = "; ".join(each.sentence() for each in problem.errors)
    if by_field and problem.detail.startswith(sentences):
        return FormRejection(problem.kind.status, "; ".join(elsewhere), by_field)
    # The detail has more than the errors of fields, such as why a verification failed.
    return FormRejection(problem.kind.status, problem.detail, by_field)
