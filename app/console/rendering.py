"""Pages rendered from templates, which escape every value."""

from functools import cache
from typing import Any, Protocol, cast

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.responses import HTMLResponse

from app.console import formats
from app.console.flash_messages import flash_message
from app.console.health import HealthMonitor
from app.console.static_files import static_url
from app.services.services import now_ms


@cache
def environment(lease_s: float) -> Environment:
    """Return the templates with the console's filters. Rows mark leases older than `lease_s`."""
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


class TemplateMacro(Protocol):
    """A macro of a template."""

    def __call__(self, *arguments: object) -> Markup:
        """Return the markup."""


def template_macro(environment: Environment, template: str, name: str) -> TemplateMacro:
    """Return the macro `name` of a template."""
    return cast("TemplateMacro", getattr(environment.get_template(template).module, name))


@pass_context
def _csrf_field(context: Context) -> Markup:
    """Return the hidden input that every form needs which changes something."""
    viewer = context["viewer"]
    return Markup('<input type="hidden" name="csrf" value="{}">').format(viewer.csrf)


class Renderer:
    """Renders pages with the values of their header: the viewer and the health."""

    def __init__(self, health: HealthMonitor, lease_s: float) -> None:
        self.environment = environment(lease_s)
        self._health = health

    async def render(
        self, request: Request, template: str, status: int = 200, **context: Any
    ) -> HTMLResponse:
        """Return the page of a template."""
        viewer = getattr(request.state, "viewer", None)
        health = None if viewer is None else await self._health.read()
        text = self.environment.get_template(template).render(
            viewer=viewer,
            health=health,
            path=request.url.path,
            present_ms=now_ms(),
            flash=flash_message(request.query_params),
            **context,
        )
        return HTMLResponse(text, status)


async def render_page(
    request: Request, template: str, status: int = 200, **context: Any
) -> HTMLResponse:
    """Return the page of a template, for the viewer of a request."""
    renderer = cast("Renderer", request.app.state.renderer)
    return await renderer.render(request, template, status, **context)
