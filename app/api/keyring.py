"""The keys of those who asked lately, so that not every request is a question to the database."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from app.api.single_flight import SingleFlight
from app.domain.accounts import ApiKey
from app.store import StoreUnavailable

FRESH_S: Final = 2.0
"""For so long a key is taken for what it was; a key that is revoked opens nothing after it."""

STALE_S: Final = 600.0
"""For so long a key that was good goes on to open while the database is away: long enough for
an operator to be told of it by the metrics, which need a key as well."""

PATIENCE_S: Final = 1.0
"""How long a request whose key was good waits for a database that does not answer."""

KEYS_MAX: Final = 10_000

API_KEY: Final = re.compile(r"rwk_[A-Za-z0-9_-]{43}")
"""The text of a key, as the store makes it: 32 random bytes in base64url."""


@dataclass(frozen=True, slots=True)
class _Seen:
    key: ApiKey
    asked_s: float


class Keyring:
    """Looks keys up by a text, and remembers those that are good by the digest of that text.

    `look_up`, which runs in a thread, is asked for texts of `pattern` alone. Keys that are not good
    are not remembered: they would drive out the others. A key is looked up by one request at a
    time; others that bring it wait for what that one finds.
    """

    def __init__(
        self,
        look_up: Callable[[str], ApiKey | None],
        pattern: re.Pattern[str] = API_KEY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._pattern = pattern
        self._clock = clock
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._questions: SingleFlight[bytes, ApiKey | None] = SingleFlight()

    def has_seen(self, token: str) -> bool:
        """Whether `token` was good when it was last asked for."""
        return _digest(token) in self._seen

    async def key_of(self, token: str) -> ApiKey | None:
        """The key whose text is `token`; None when there is none, or it is revoked.

        Raises:
            StoreUnavailable: the database does not answer, and the key was not seen of late.
        """
        if not self._pattern.fullmatch(token):
            return None
        digest = _digest(token)
        seen = self._seen.get(digest)
        age_s = STALE_S if seen is None else self._clock() - seen.asked_s
        if seen is None or age_s >= STALE_S:
            return await self._asked(digest, token)
        if age_s < FRESH_S:
            return seen.key
        try:
            return await asyncio.wait_for(self._asked(digest, token), PATIENCE_S)
        except (StoreUnavailable, TimeoutError):
            return seen.key

    def forget(self, token: str) -> None:
        """Ask anew when `token` is shown the next time."""
        self._seen.pop(_digest(token), None)

    def remember(self, token: str, key: ApiKey) -> None:
        """Take `token`, which was just made, for one that was asked for."""
        self._note(_digest(token), _Seen(key, self._clock()))

    async def _asked(self, digest: bytes, token: str) -> ApiKey | None:
        asked_s = self._clock()
        key = await self._questions.ask(digest, lambda: self._look_up(token))
        self._seen.pop(digest, None)
        if key is not None:
            self._note(digest, _Seen(key, asked_s))
        return key

    def _note(self, digest: bytes, seen: _Seen) -> None:
        while len(self._seen) >= KEYS_MAX:
            self._seen.popitem(last=False)
        self._seen[digest] = seen


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
