"""Constants of responses that stream Server-Sent Events.

Source: HTML Living Standard, section 9.2 "Server-sent events".
"""

from typing import Final

MEDIA_TYPE: Final = "text/event-stream"

# Proxies such as nginx would buffer the events.
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}

RETRY: Final = "retry: 2000\n\n"
"""The first event: clients reconnect after two seconds."""

HEARTBEAT_S: Final = 15.0
"""Proxies close silent connections, often after a minute or less."""

STREAM_S_MAX: Final = 600.0
"""Then the client reconnects, and authenticates again."""
