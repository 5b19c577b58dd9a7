"""Audit log lines for changes made in the console, in the format of the API's."""

from fastapi import Request

from app.audit_log import record_change
from app.domain.accounts import ApiKey
from app.http.request_log import client_host


def log_change(
    request: Request,
    key: ApiKey | None,
    status: int,
    target: str | None = None,
    operation: str | None = None,
) -> None:
    """Log a change. The operation is the API's; the target of a bulk action is a number.

    By default they are the operation and the ids in the path of the request's route.
    """
    request.state.is_change_logged = True
    record_change(
        operation or request.scope["route"].operation_id,
        target or "/".join(request.path_params.values()) or None,
        key_id=None if key is None else key.id,
        account_id=None if key is None else key.account.id,
        status=status,
        client=client_host(request.scope),
        by="console",
    )


def log_rejected_change(request: Request, status: int) -> None:
    """Log a change that was rejected before its page could log it. Ignores other requests."""
    operation = getattr(request.scope.get("route"), "operation_id", None)
    if operation is None or getattr(request.state, "is_change_logged", False):
        return
    viewer = getattr(request.state, "viewer", None)
    log_change(request, None if viewer is None else viewer.key, status)
