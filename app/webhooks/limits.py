"""What one receiver may cost the sender."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """Times in seconds, sizes in bytes.

    `connect_s` (resolving, connecting and TLS) and `total_s` run from the moment an attempt has
    its place among the `connections_per_target`. Sizes are checked after each read.
    """

    connect_s: float = 10.0
    # Standard Webhooks asks for 15 to 30 seconds.
    total_s: float = 20.0
    response_head_bytes: int = 32 * 1024
    response_body_bytes: int = 64 * 1024
    connections_per_target: int = 64
    idle_s: float = 30.0

    @property
    def timeout_reason(self) -> str:
        """What is said of an attempt that took all its time."""
        return f"timeout: no answer within {self.total_s:g} s"
