"""What the handlers of pages receive: the request with its user and the services, and the form."""

from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from jinja2 import Environment
from starlette.responses import RedirectResponse, Response

from app.console.audit import log_change
from app.console.forms import Form, FormRejection, form_rejection, read_form
from app.console.rendering import Renderer, render_page
from app.console.sessions import Viewer, ViewerDependency, check_change
from app.domain.accounts import ApiKey
from app.http.dependencies import ServicesDependency
from app.http.error_table import problem_of
from app.services.errors import OperatorKeyRequired, ReadOnlyKey
from app.services.services import Services


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of a signed-in user."""

    http: Request
    services: Services
    viewer: Viewer

    @property
    def key(self) -> ApiKey:
        """The API key of the session."""
        return self.viewer.key

    @property
    def templates(self) -> Environment:
        """The templates of the console."""
        return cast("Renderer", self.http.app.state.renderer).environment

    async def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """Return the page of a template."""
        return await render_page(self.http, template, status, **context)

    async def render_form(
        self, template: str, rejection: FormRejection | None, **context: Any
    ) -> Response:
        """Return the page of a form, and why it was rejected if it was."""
        status = 200 if rejection is None else rejection.status
        return await self.render(template, status, rejection=rejection, **context)


@dataclass(frozen=True, slots=True)
class Submission(PageRequest):
    """A form that changes something, from a user with a read-write key.

    Its line in the audit log has the operation and the ids in the path of its route, unless the
    handler names another operation or target.
    """

    form: Form

    def log_change(
        self, status: int, target: str | None = None, operation: str | None = None
    ) -> None:
        """Log the change, accepted or rejected."""
        log_change(self.http, self.key, status, target, operation)

    def redirect(
        self, url: str, target: str | None = None, operation: str | None = None
    ) -> Response:
        """Log the change, and redirect to the page that shows it."""
        self.log_change(303, target, operation)
        return RedirectResponse(url, 303)

    def reject(
        self, error: Exception, names: tuple[str, ...], operation: str | None = None
    ) -> FormRejection:
        """Log the rejected change, and return how a form with fields of these names shows it.

        Server errors are raised again, for the error page.
        """
        rejection = form_rejection(error, names)
        self.log_change(rejection.status, operation=operation)
        return rejection

    def log_problem(self, error: Exception) -> tuple[int, str]:
        """Log the rejected change, and return its status and its error in words."""
        problem = problem_of(error)
        self.log_change(problem.kind.status)
        return problem.kind.status, f"{problem.kind.title}: {problem.detail}"


async def _viewer_request(
    request: Request, services: ServicesDependency, viewer: ViewerDependency
) -> PageRequest:
    return PageRequest(request, services, viewer)


ViewerRequest = Annotated[PageRequest, Depends(_viewer_request)]
"""A request of a signed-in user."""


async def _operator_request(request: ViewerRequest) -> PageRequest:
    if not request.viewer.is_operator:
        raise OperatorKeyRequired
    return request


OperatorRequest = Annotated[PageRequest, Depends(_operator_request)]
"""A request of a signed-in operator."""


async def _editor_request(request: ViewerRequest) -> PageRequest:
    if not request.viewer.may_change:
        raise ReadOnlyKey
    return request


EditorRequest = Annotated[PageRequest, Depends(_editor_request)]
"""A request of a signed-in user whose key is not read-only."""


async def _change_request(
    request: Request, services: ServicesDependency, viewer: ViewerDependency
) -> Submission:
    form = await read_form(request)
    check_change(request, viewer, form["csrf"])
    return Submission(request, services, viewer, form)


ChangeRequest = Annotated[Submission, Depends(_change_request)]
"""A submitted form of a signed-in user whose key is not read-only."""
