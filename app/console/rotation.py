"""The form that rotates a secret, of a webhook or of a notice endpoint."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from starlette.concurrency import run_in_threadpool

from app.console.forms import Form, parse_body
from app.console.page_requests import Submission
from app.domain.account_notices import NoticeEndpoint
from app.domain.accounts import ApiKey
from app.domain.model import Webhook
from app.http.request_bodies import GRACE_S, Rotation
from app.services.services import Services
from app.webhooks.signing import new_secret

GRACE_PERIODS: Final = {
    0: "none: end it now",
    3_600: "1 hour",
    GRACE_S: "1 day",
    7 * GRACE_S: "7 days",
}
"""The grace periods to choose from: seconds and label."""

_DIGITS_MAX: Final = 9

Endpoint = TypeVar("Endpoint", Webhook, NoticeEndpoint)


def rotation_context(chosen: str) -> dict[str, Any]:
    """Return what the form shows, with the new secret in a hidden field.

    The hidden secret makes the form idempotent. Otherwise a double click would rotate twice: the
    receiver's secret would become invalid, and the first new secret would never be shown.
    """
    return {
        "secret": new_secret(),
        "grace_periods": GRACE_PERIODS,
        "chosen": chosen,
    }


async def rotate_with_form(
    request: Submission,
    endpoint: Endpoint,
    rotate: Callable[[Services, ApiKey, str, str | None, int], Endpoint],
) -> Endpoint:
    """Rotate the secret as the form says, unless it is the current one, and return the endpoint.

    Raises:
        Problem: a value is invalid.
        The errors of `rotate`.
    """
    if request.form["secret"] == endpoint.secret:
        return endpoint
    rotation = _parse_rotation(request.form)
    rotated = await run_in_threadpool(
        rotate,
        request.services,
        request.key,
        endpoint.id,
        rotation.secret,
        rotation.grace_period_seconds,
    )
    request.log_change(200)
    return rotated


def _parse_rotation(form: Form) -> Rotation:
    grace = form["gracePeriodSeconds"]
    seconds = int(grace) if _is_number(grace) else grace
    return parse_body(Rotation, {"secret": form["secret"], "gracePeriodSeconds": seconds})


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
