"""Names that nobody can guess, and how they are compared."""

import secrets
from typing import Final

from sqlalchemy import Column, ColumnElement, and_, func

ID_BYTES: Final = 12
"""Random bytes of an id: two of a thousand million millions meet with a chance of 1e-5."""


def new_webhook_id() -> str:
    """An id "wh_..." of a webhook."""
    return f"wh_{secrets.token_hex(ID_BYTES)}"


def new_replay_id() -> str:
    """An id "rpl_..." of a replay."""
    return f"rpl_{secrets.token_hex(ID_BYTES)}"


def new_account_id() -> str:
    """An id "acc_..." of an account."""
    return f"acc_{secrets.token_hex(ID_BYTES)}"


def new_key_id() -> str:
    """An id "key_..." of an API key, which is not its text."""
    return f"key_{secrets.token_hex(ID_BYTES)}"


def exactly(column: Column[str], text: str) -> ColumnElement[bool]:
    """Whether `column`, which holds ASCII, is `text`: to MySQL, "a" and "a " are equal as well.

    A webhook found by another spelling of its id would have its events sought under that key.
    """
    return and_(column == text, func.length(column) == len(text))
