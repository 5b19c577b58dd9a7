"""The fence of KIP-320: a client whose view of the leader is not the broker's is told so."""

from typing import Final

from logbroker.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from logbroker.storage.partition_log import PartitionLog

NOT_CHECKED: Final = -1
"""The epoch that a client sends when it has none, or its version has no such field."""


def check_leader_epoch(log: PartitionLog, client_epoch: int | None) -> None:
    """Let pass a client with the present leader epoch, or with none.

    Raises:
        FencedLeaderEpoch: the client's epoch is older.
        UnknownLeaderEpoch: the client's epoch is newer.
    """
    if client_epoch is None or client_epoch == NOT_CHECKED or client_epoch == log.leader_epoch:
        return
    where = f"{log.topic}-{log.partition} has leader epoch {log.leader_epoch}"
    error = FencedLeaderEpoch if client_epoch < log.leader_epoch else UnknownLeaderEpoch
    raise error(f"{where}; the request has {client_epoch}")
