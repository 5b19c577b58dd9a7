"""Where the replay service is, and which key opens it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_jobs.errors import InvalidOption

if TYPE_CHECKING:
    # Most runs have no service to report to.
    import httpx


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The URL of the service's API, and an operator's key, or "".

    Raises:
        InvalidOption: the URL is none, or the key cannot be one; neither is repeated.
    """

    url: str
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        _check(self.url, self.key)

    def client(self, timeout_s: float) -> "httpx.Client":
        """A client that shows the key; whoever asks for it closes it."""
        import httpx

        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)


def _check(url: str, key: str) -> None:
    """Refuse what a client would only fail by, with the key or a password in what it says."""
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise InvalidOption(
            "the URL of the service is not like https://HOST:PORT, without user and password"
        )
    if not (key.isascii() and key.isprintable()):
        raise InvalidOption("the key has characters that no key of the service has")
