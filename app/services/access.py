"""Which accounts an API key may access."""

from app.domain.accounts import ApiKey
from app.services.errors import AccountNotAllowed, FieldError


def select_account(caller: ApiKey, account_id: str | None) -> str | None:
    """The account that a request is limited to; None for all accounts.

    Raises:
        AccountNotAllowed: a developer named an account other than their own.
    """
    if account_id is None or caller.sees is None:
        return account_id or caller.sees
    if account_id != caller.sees:
        raise AccountNotAllowed(
            fields=[FieldError("accountId", account_id, "the account of the key")]
        )
    return account_id
