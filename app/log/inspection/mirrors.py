"""Which consumer groups are mirrors': `logbroker mirror` reads a log by a group of that log."""

from collections.abc import Iterable
from typing import Final, NamedTuple

GROUP_PREFIX: Final = "logbroker-mirror-"
"""What stands before the id of the destination's cluster, unless a group is named by `--group`."""

CLIENT_ID: Final = "logbroker-mirror"
"""By which members are known also in a group of another name."""


class Mirror(NamedTuple):
    """A mirror's group; `destination` is the cluster that it copies to, where the name tells."""

    destination: str | None


def mirror_of(group_id: str, client_ids: Iterable[str]) -> Mirror | None:
    """The mirror that a group is of; None where it is nobody's that can be told."""
    if group_id.startswith(GROUP_PREFIX) and len(group_id) > len(GROUP_PREFIX):
        return Mirror(group_id.removeprefix(GROUP_PREFIX))
    return Mirror(None) if CLIENT_ID in client_ids else None
