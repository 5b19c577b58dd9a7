"""A broker's own nodes: its registration, and the controller role if it is free."""

import logging
import time
from collections.abc import Collection

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.payloads import Registration, format_broker, format_controller
from logbroker.registry.zookeeper.session import ZooKeeperSession
from logbroker.registry.zookeeper.snapshot import BrokerSession, Snapshot, live_brokers

_log = logging.getLogger(__name__)


def find_conflict(
    snapshot: Snapshot,
    own: BrokerSession,
    directory_id: str,
    own_sessions: Collection[int] | None,
) -> str | None:
    """Return why this broker cannot register now; None if it can.

    A registration left by a dead process of the same data directory is no conflict, because this
    process holds the directory's lock. After this broker has joined (`own_sessions` is given),
    another registration with the same directory id is a running process with a copy of the
    directory. If both replaced each other, they would lead by turns.
    """
    node = snapshot.brokers.get(own.broker_id)
    if node is None or node.session_id == own.session_id:
        return None
    if node.registration is None:
        return f"{paths.broker(own.broker_id)} exists and cannot be parsed"
    endpoint = node.registration.endpoint
    if node.registration.directory_id == directory_id:
        if own_sessions is None or node.session_id in own_sessions:
            return None
        return (
            f"a broker at {endpoint.host}:{endpoint.port} registered with a copy of its data "
            f"directory {directory_id}; stop one of the two"
        )
    return (
        f"a broker at {endpoint.host}:{endpoint.port} is registered under this id, with the data "
        f"directory {node.registration.directory_id}, not {directory_id}"
    )


def register(
    session: ZooKeeperSession,
    snapshot: Snapshot,
    own: BrokerSession,
    registration: Registration,
) -> bool:
    """Register below `/brokers/ids`, replacing the node of a dead process.

    Returns False if there was nothing to do; otherwise the snapshot's brokers are out of date.

    Raises:
        RegistryUnavailable: the change may have been made or not.
    """
    node = snapshot.brokers.get(own.broker_id)
    if node is not None and node.session_id == own.session_id:
        return False
    path = paths.broker(own.broker_id)
    content = format_broker(registration, _now_ms())
    try:
        if node is not None:
            _log.info("replacing %s of an earlier process", path)
            session.request_once(lambda client: client.delete_async(path, node.version))
        session.request_once(lambda client: client.create_async(path, content, ephemeral=True))
    except (NodeExistsError, NoNodeError, BadVersionError):
        _log.info("%s was changed by another process", path)
    return True


def claim_controller(session: ZooKeeperSession, snapshot: Snapshot, own: BrokerSession) -> bool:
    """Become the controller if there is none and this broker is registered.

    Returns False if there was nothing to do; otherwise the snapshot's controller is out of date.

    Raises:
        RegistryUnavailable: the change may have been made or not.
    """
    office = snapshot.controller
    is_stale = (
        office is not None
        and office.broker_id == own.broker_id
        and office.session_id != own.session_id
    )
    if own.broker_id not in live_brokers(snapshot, own) or not (office is None or is_stale):
        return False
    content = format_controller(own.broker_id, _now_ms())
    try:
        if is_stale:
            session.request_once(lambda client: client.delete_async(paths.CONTROLLER))
        session.request_once(
            lambda client: client.create_async(paths.CONTROLLER, content, ephemeral=True)
        )
    except (NodeExistsError, NoNodeError):
        _log.info("another broker became the controller")
    return True


def _now_ms() -> int:
    return int(time.time() * 1000)
