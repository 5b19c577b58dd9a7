"""The form that rotates a secret, of a webhook or of a notice endpoint."""

from typing import Any, Final

from app.console.forms import Form, FormRejection, parse_body
from app.http.request_bodies import GRACE_S, Rotation
from app.webhooks.signing import new_secret

GRACE_PERIODS: Final = {
    0: "none: end it now",
    3_600: "1 hour",
    GRACE_S: "1 day",
    7 * GRACE_S: "7 days",
}
"""The grace periods to choose from: seconds and label."""

_DIGITS_MAX: Final = 9


def rotation_context(rejection: FormRejection | None, chosen: str) -> dict[str, Any]:
    """Return what the form shows, with the new secret in a hidden field.

    The hidden secret makes the form idempotent. Otherwise a double click would rotate twice: the
    receiver's secret would become invalid, and the first new secret would never be shown.
    """
    return {
        "rejection": rejection,
        "secret": new_secret(),
        "grace_periods": GRACE_PERIODS,
        "chosen": chosen,
    }


def parse_rotation(form: Form) -> Rotation:
    """Return the new secret and the grace period of a form.

    Raises:
        Problem: a value is invalid.
    """
    grace = form["gracePeriodSeconds"]
    seconds = int(grace) if _is_number(grace) else grace
    return parse_body(Rotation, {"secret": form["secret"], "gracePeriodSeconds": seconds})


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
