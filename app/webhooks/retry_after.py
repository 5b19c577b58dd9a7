"""What a receiver asks for in a Retry-After header.

Source: RFC 9110, section 10.2.3.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime

_DIGITS_MAX = 10
"""Ten digits of seconds are three centuries; more is no wish but noise."""


def retry_after_s(value: str, now_s: float) -> float | None:
    """Seconds from `now_s` until another attempt is welcome; None when `value` is unreadable.

    A date in the past gives 0.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value) if len(value) <= _DIGITS_MAX else None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    # HTTP dates are in GMT; one that names no zone is not in ours.
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now_s)
