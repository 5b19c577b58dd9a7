"""What signed requests are sent to: the receiver of a webhook, or of notices."""

from typing import Protocol

from app.domain.endpoint_options import EndpointOptions
from app.domain.model import Validation


class Receiver(Protocol):
    """A receiver: its URL, how it is verified, and what its requests have."""

    @property
    def id(self) -> str:
        """The id of its registration."""
        ...

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    @property
    def validation(self) -> Validation:
        """How it is verified."""
        ...

    @property
    def options(self) -> EndpointOptions | None:
        """Options of its requests; None without any."""
        ...

    def secrets_at(self, now_ms: int, /) -> tuple[str, ...]:
        """The secrets that sign at `now_ms`, the current one first."""
        ...
