"""Accounts and their API keys."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_ACCOUNT: Final = "acc_default"
"""The operator's account; it also owns everything that older versions stored."""

DEFAULT_ACCOUNT_NAME: Final = "default"

ACCOUNT_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"


OPERATOR_ACTOR: Final = "operator"
"""The author of an operator's changes, whichever key was used."""


class Scope(StrEnum):
    """What a key gives access to."""

    DEVELOPER = "developer"
    """The webhooks and replays of its own account."""

    OPERATOR = "operator"
    """Everything: all accounts, and the operations of the platform."""


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant: a developer, or the operator."""

    id: str
    name: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its token, which is shown once and stored as a hash.

    A read-only key can read what its scope allows, and change nothing.
    """

    id: str
    account: Account
    scope: Scope
    description: str
    created_ms: int
    revoked_ms: int | None
    is_read_only: bool = False

    @property
    def actor(self) -> str:
        """The author of its changes in the history of a replay, which developers may read.

        Ids of operators' keys are in the audit log alone.
        """
        return OPERATOR_ACTOR if self.scope is Scope.OPERATOR else self.id

    @property
    def account_filter(self) -> str | None:
        """The id of the account that this key has access to; None for all accounts."""
        return None if self.scope is Scope.OPERATOR else self.account.id
