"""How much of one thing an account may have under way at a time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.api.problems import RATE_LIMITED, Problem
from app.domain.accounts import ApiKey


class Places:
    """So many places for each developer's account, and any number for operators.

    For one event loop. What one account holds up must not hold up the others. `taken` ends the
    sentence that refuses one more, behind their number.
    """

    def __init__(self, per_account_max: int, taken: str) -> None:
        self._per_account_max = per_account_max
        self._taken = taken
        self._of_accounts: Counter[str] = Counter()

    @contextmanager
    def place(self, caller: ApiKey) -> Iterator[None]:
        """A place for what `caller` asks for; to be taken before anything is changed.

        Raises:
            Problem: a developer has as many under way as one may have.
        """
        account_id = caller.account.id
        if caller.sees is not None and self._of_accounts[account_id] >= self._per_account_max:
            detail = f"{self._per_account_max} {self._taken}"
            raise Problem(RATE_LIMITED, detail, headers={"retry-after": "1"})
        self._of_accounts[account_id] += 1
        try:
            yield
        finally:
            self._of_accounts[account_id] -= 1
            self._of_accounts += Counter()  # accounts that have none are forgotten
