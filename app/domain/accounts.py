"""Who may ask for what: accounts, and the keys they ask with."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_ACCOUNT: Final = "acc_default"
"""The account of the operator, and of all that was there before there were accounts."""

DEFAULT_ACCOUNT_NAME: Final = "default"

ACCOUNT_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"


class Scope(StrEnum):
    """What a key opens."""

    DEVELOPER = "developer"
    """The webhooks and replays of its own account."""

    OPERATOR = "operator"
    """Everything: those of all accounts, and what only the platform itself may do."""


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant: a developer, or the operator."""

    id: str
    name: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its text, which is shown once and kept as a hash alone.

    One that is read-only sees what its scope opens, and changes nothing of it.
    """

    id: str
    account: Account
    scope: Scope
    description: str
    created_ms: int
    revoked_ms: int | None
    is_read_only: bool = False

    @property
    def sees(self) -> str | None:
        """The one account whose things this key may see; None when it may see all."""
        return None if self.scope is Scope.OPERATOR else self.account.id
