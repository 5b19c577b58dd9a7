"""The id that a cluster is given once, when its first broker starts."""

import base64
from uuid import uuid4


def new_cluster_id() -> str:
    """16 random bytes in base64url without padding, as Kafka has them."""
    # Kafka draws again when an id begins with a dash, which a command line takes for an option.
    while (text := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
