"""Parameters that routes of the API and of the console share."""

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from app.services.services import Services


def services_of(request: Request) -> Services:
    """The services of the application."""
    return cast("Services", request.app.state.services)


async def _services(request: Request) -> Services:
    return services_of(request)


ServicesDependency = Annotated[Services, Depends(_services)]

AccountId = Annotated[
    str | None,
    Query(alias="accountId", max_length=40, description="For operators: only of this account."),
]

Cursor = Annotated[
    str | None, Query(max_length=500, description="The `nextCursor` of the previous page.")
]

MergedCursor = Annotated[
    str | None, Query(max_length=1_000, description="The `nextCursor` of the previous page.")
]
"""The cursor of a list that is merged from several."""

Limit = Annotated[int, Query(ge=1, le=200, description="Items per page.")]
