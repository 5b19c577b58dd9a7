"""What the key of a request opens."""

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from app.api.problems import FORBIDDEN, FieldError, Problem
from app.domain.accounts import ApiKey, Scope

_CHALLENGE = {"www-authenticate": 'Bearer realm="rewind", error="insufficient_scope"'}

AccountId = Annotated[
    str | None,
    Query(alias="accountId", max_length=40, description="For operators: of this account alone."),
]


async def _caller(request: Request) -> ApiKey:
    return cast("ApiKey", request.state.api_key)


CallerDependency = Annotated[ApiKey, Depends(_caller)]
"""The key that the gate let the request in with."""


async def _operator(caller: CallerDependency) -> ApiKey:
    if caller.scope is not Scope.OPERATOR:
        raise Problem(FORBIDDEN, "it takes an operator's key", headers=_CHALLENGE)
    return caller


OperatorOnly = Depends(_operator)
"""Among the `dependencies` of a route that opens to operators alone."""


def account_meant(caller: ApiKey, account_id: str | None) -> str | None:
    """The account that a request is about: the one it names, else what its key sees.

    Raises:
        Problem: a developer names an account that is not their own, existing or not.
    """
    if account_id is None or caller.sees is None:
        return account_id or caller.sees
    if account_id != caller.sees:
        refused = FieldError("accountId", account_id, "the account of the key")
        raise Problem.of_fields(FORBIDDEN, [refused])
    return account_id
