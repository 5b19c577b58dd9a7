"""Forms that are not taken as they are: what is shown beside which field, in the API's words."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from app.api.problems import INVALID_REQUEST, Problem, field_errors
from app.api.refusals import problem_of
from app.domain.windows import WindowRefused
from app.log.errors import LogError
from app.store import StoreError
from app.webhooks.guard import UrlRefused

Body = TypeVar("Body", bound=BaseModel)

REFUSALS: Final = (Problem, StoreError, LogError, UrlRefused, WindowRefused)
"""What a function of the API may raise that a form can tell of; see `refusal_of`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a form was not taken.

    `fields` has what is wrong with each field, by its name; `words` what lies in none of them.
    """

    status: int
    words: str
    fields: Mapping[str, str] = field(default_factory=dict)


def read_body(model: type[Body], given: Mapping[str, object]) -> Body:
    """The body of a request to the API that a form stands for.

    Raises:
        Problem: it is none; of what the API says as well.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise Problem.of_fields(INVALID_REQUEST, field_errors(error.errors())) from None


def refusal_of(error: Exception, names: Collection[str]) -> Refusal:
    """What to say of one of `REFUSALS` on the page of a form that has fields of these names.

    What is nobody's fault who filled a form in, it raises again, for the page of errors.
    """
    problem = problem_of(error, "")
    if problem.kind.status >= 500:
        raise error
    fields: dict[str, list[str]] = {}
    elsewhere: list[str] = []
    for each in problem.errors:
        # Such as `eventTypes[3]`, or `url.host`.
        name = each.field.partition("[")[0].partition(".")[0]
        wrong = fields.setdefault(name, []) if name in names else elsewhere
        wrong.append(each.sentence())
    told = {name: "; ".join(sentences) for name, sentences in fields.items()}
    sentences = "; ".join(each.sentence() for each in problem.errors)
    if told and problem.detail.startswith(sentences):
        return Refusal(problem.kind.status, "; ".join(elsewhere), told)
    # The detail says more than what lies in fields, such as why a receiver proved nothing.
    return Refusal(problem.kind.status, problem.detail, told)
