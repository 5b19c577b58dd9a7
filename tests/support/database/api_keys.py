"""API keys of accounts that tests name."""

from contextlib import suppress

from app.domain.accounts import ApiKey, Scope
from app.store import AccountExists, Store


def issue_key(
    store: Store,
    account_name: str,
    scope: Scope = Scope.DEVELOPER,
    description: str = "",
    *,
    is_read_only: bool = False,
) -> tuple[ApiKey, str]:
    """Return a new key with its token; creates the account, without grants, if it is missing."""
    with suppress(AccountExists):
        store.create_account(account_name)
    return store.create_key(account_name, scope, description, is_read_only=is_read_only)
