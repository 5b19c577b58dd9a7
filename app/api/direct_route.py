"""Routes that are called without FastAPI's part of a request, for those that clients use most."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class DirectRoute(APIRoute):
    """Calls its function with the request, and the variable parts of the path as texts.

    The function returns the response. FastAPI would solve its dependencies, and validate and encode
    what it returns, for longer than such a function runs. The OpenAPI document describes the route
    like any other.
    """

    def __init__(
        self, path: str, endpoint: Callable[..., Coroutine[Any, Any, Response]], **options: Any
    ) -> None:
        super().__init__(path, endpoint, **options)
        self.app = self._serve

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(Request(scope, receive, send), **scope["path_params"])
        await response(scope, receive, send)
