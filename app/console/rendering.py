"""Pages from templates. Everything that a template is given is text to it, never markup."""

from functools import cache
from typing import Any, cast

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.responses import HTMLResponse

from app.api.doors import now_ms
from app.console import formats
from app.console.health import HealthWatch
from app.console.notices import notice_of
from app.console.static_files import static_url


@cache
def environment(lease_s: float) -> Environment:
    """The templates, with the formats of the console as their filters.

    Rows say when the lease of who works on a job, of `lease_s`, is over.
    """
    made = Environment(
        autoescape=True,
        loader=PackageLoader("app.console"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= formats.FILTERS
    made.globals["static_url"] = static_url
    made.globals["csrf_field"] = _csrf_field
    made.globals["lease_s"] = lease_s
    return made


@pass_context
def _csrf_field(context: Context) -> Markup:
    """What every form by which somebody changes something has to hold."""
    viewer = context["viewer"]
    return Markup('<input type="hidden" name="csrf" value="{}">').format(viewer.csrf)


class Renderer:
    """Makes pages, each with what its head shows: who is signed in, and how everything is."""

    def __init__(self, health: HealthWatch, lease_s: float) -> None:
        self.environment = environment(lease_s)
        self._health = health

    async def page(
        self, request: Request, template: str, status: int = 200, **context: Any
    ) -> HTMLResponse:
        """The page of a template."""
        viewer = getattr(request.state, "viewer", None)
        health = None if viewer is None else await self._health.read()
        text = self.environment.get_template(template).render(
            viewer=viewer,
            health=health,
            path=request.url.path,
            present_ms=now_ms(),
            notice=notice_of(request.query_params),
            **context,
        )
        return HTMLResponse(text, status)


async def rendered(
    request: Request, template: str, status: int = 200, **context: Any
) -> HTMLResponse:
    """The page of a template, for the one who asks."""
    renderer = cast("Renderer", request.app.state.renderer)
    return await renderer.page(request, template, status, **context)


def environment_of(request: Request) -> Environment:
    """The templates of the application that a request came to."""
    renderer = cast("Renderer", request.app.state.renderer)
    return renderer.environment
