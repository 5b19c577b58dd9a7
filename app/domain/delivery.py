"""What one attempt to deliver a webhook came to, as values.

Nothing here is an error of ours: a receiver that is down or says no is what replays are for.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver took the event: it answered with a status of the 200s."""

    status: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The receiver answered, but not with a status of the 200s.

    `retry_after_s` is what its Retry-After header asks for, counted from the answer and never
    negative; None without that header, or when it cannot be read. `response` is how the body of the
    answer begins.
    """

    status: int
    retry_after_s: float | None
    reason: str
    response: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No complete answer came. The receiver may have taken the event all the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """Nothing was sent, for a reason on our side: this was no attempt."""


Outcome = Delivered | Refused | Unreachable | Withheld
