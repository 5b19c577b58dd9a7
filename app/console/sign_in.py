"""Signing in and out."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from app.console.audit import note_change
from app.console.forms import read_form
from app.console.gate import ViewerDependency, check_form
from app.console.rendering import rendered

FIRST_PAGE: Final = "/console/jobs"

NEXT_CHARACTERS_MAX: Final = 2_000

router = APIRouter()

Next = Annotated[str, Query(alias="next", max_length=NEXT_CHARACTERS_MAX)]


@router.get("")
def first_page() -> Response:
    """Where people begin."""
    return RedirectResponse(FIRST_PAGE, 303)


@router.get("/sign-in")
async def sign_in_page(request: Request, next_page: Next = "") -> Response:
    """Ask for an API key."""
    return await rendered(request, "sign_in.html", next_page=next_page)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Take an API key, and go on to the page that was asked for before."""
    form = await read_form(request)
    response = RedirectResponse(_own_page(form["next"]), 303)
    key = await request.app.state.gate.sign_in(request, form["key"], response)
    if key is None:
        return await rendered(request, "sign_in.html", 401, next_page=form["next"], is_refused=True)
    note_change(request, key, "signIn", key.id, response.status_code)
    return response


@router.post("/sign-out")
async def sign_out(request: Request, viewer: ViewerDependency) -> Response:
    """End the session. Also who may only look may leave."""
    form = await read_form(request)
    check_form(request, viewer, form["csrf"])
    response = RedirectResponse("/console/sign-in", 303)
    await request.app.state.gate.sign_out(request, response)
    note_change(request, viewer.key, "signOut", viewer.key.id, response.status_code)
    return response


def _own_page(page: str) -> str:
    """The page to go on to, which a link from elsewhere may have chosen: one of ours."""
    is_ours = page.startswith("/console/") and "\\" not in page and page.isprintable()
    return page if is_ours and len(page) <= NEXT_CHARACTERS_MAX else FIRST_PAGE
