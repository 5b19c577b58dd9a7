"""Confirmation of e-mail addresses: a mail to the address has a code that its owner passes on."""

import hashlib
from typing import Final

from app.domain.windows import DAY_MS

VALID_MS: Final = DAY_MS
"""How long a code is valid."""

PER_ACCOUNT_AND_HOUR_MAX: Final = 10
"""Confirmation mails: without a limit, any API key could make this service send mail to others."""

PER_ADDRESS_AND_DAY_MAX: Final = 5
"""Confirmation mails of one account to one address."""

CODE_CHARS_MAX: Final = 64
"""Of a code as it is typed, with spaces."""


def code_digest(code: str) -> str:
    """The digest that is stored of a code; case, spaces and hyphens do not matter."""
    letters = code.upper().replace("-", "").replace(" ", "")
    return hashlib.sha256(letters.encode(errors="replace")).hexdigest()
