"""The two clients that ask about a log, each for what the other tells badly."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from app.log.complaints import COMPLAINTS

_LEADERS_AGE_MS: Final = 1_000


def asking_clients(
    bootstrap_servers: str, properties: Mapping[str, Any], group: str, silence_ms: int
) -> tuple[AdminClient, Consumer]:
    """One for offsets, settings and groups, and one for what topics there are.

    `properties` are the operator's: TLS, SASL and the like. After `silence_ms` without an answer a
    client lets go of the broker that it asked for metadata: it prefers the one that it asked last,
    so one that hangs would be asked again each time.
    """
    # The errors a caller can do something about come with the answers.
    client: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "error_cb": COMPLAINTS.note,
        "socket.timeout.ms": silence_ms,
        **properties,
    }
    # By default the admin client believes for a quarter of an hour that a partition's leader is
    # the one that it was, and asks that one although it is dead and another leads.
    admin = AdminClient({**client, "metadata.max.age.ms": _LEADERS_AGE_MS})
    # Any broker tells a consumer what topics have. The admin client asks the controller, which
    # may be the one broker that is away, or makes the topic by asking. The group is none that is
    # joined: the client wants a name.
    return admin, Consumer({**client, "group.id": group})
