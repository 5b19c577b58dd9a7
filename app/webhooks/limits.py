"""Timeouts, sizes and connection limits of the sender, per receiver."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """Times in seconds, sizes in bytes.

    `connect_s` (DNS, TCP and TLS) and `total_s` start when the attempt gets a slot. The URLs of one
    scheme, host and port share `connections_per_target`, beyond which each URL has one connection.
    Sizes are checked after each read.
    """

    connect_s: float = 10.0
    # Standard Webhooks recommends 15 to 30 seconds.
    total_s: float = 20.0
    response_head_bytes: int = 32 * 1024
    response_body_bytes: int = 64 * 1024
    connections_per_target: int = 64
    idle_s: float = 30.0


def timeout_reason(total_s: float) -> str:
    """The reason of an attempt that took longer than `total_s`."""
    return f"timeout: no response within {total_s:g} s"
