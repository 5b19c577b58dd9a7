"""Audit log lines for changes made in the console, in the format of the API's."""

from fastapi import Request

from app.audit_log import record_change
from app.domain.accounts import ApiKey
from app.http.request_log import client_host


def log_change(request: Request, key: ApiKey, action: str, target: str | None, status: int) -> None:
    """Log a change. `action` is the API's operation; the target of a bulk action is a number."""
    request.state.is_change_logged = True
    _write(request, key, action, target, status)


def log_rejected_change(request: Request, status: int) -> None:
    """Log a change that was rejected before its page could log it. Ignores other requests."""
    action = getattr(request.scope.get("route"), "operation_id", None)
    if action is None or getattr(request.state, "is_change_logged", False):
        return
    viewer = getattr(request.state, "viewer", None)
    target = next(iter(request.path_params.values()), None)
    _write(request, None if viewer is None else viewer.key, action, target, status)


def _write(
    request: Request, key: ApiKey | None, action: str, target: str | None, status: int
) -> None:
    record_change(
        action,
        target,
        key_id=None if key is None else key.id,
        account_id=None if key is None else key.account.id,
        status=status,
        client=client_host(request.scope),
        by="console",
    )
