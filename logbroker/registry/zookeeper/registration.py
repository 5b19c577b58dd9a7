"""A broker's own nodes: its registration, and the controller's office if it is free."""

import logging
import time
from collections.abc import Collection

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.facts import Facts, Seat, live_brokers
from logbroker.registry.zookeeper.payloads import Registration, format_broker, format_controller
from logbroker.registry.zookeeper.session import ZooKeeperSession

_log = logging.getLogger(__name__)


def conflict_with(
    facts: Facts, seat: Seat, directory_id: str, own_sessions: Collection[int] | None
) -> str | None:
    """Why this broker cannot register now, if anything keeps it from that.

    What a dead process of the same data directory left is no conflict: this one holds the
    directory's lock. Once it has joined, with `own_sessions`, whoever else comes with the same
    directory lives, and has a copy: if both replaced each other, both would lead by turns.
    """
    node = facts.brokers.get(seat.broker_id)
    if node is None or node.session_id == seat.session_id:
        return None
    if node.registration is None:
        return f"{paths.broker(seat.broker_id)} is there and cannot be read"
    endpoint = node.registration.endpoint
    if node.registration.directory_id == directory_id:
        if own_sessions is None or node.session_id in own_sessions:
            return None
        return (
            f"a broker at {endpoint.host}:{endpoint.port} has taken its place, with a copy of its "
            f"data directory {directory_id}; stop one of the two"
        )
    return (
        f"a broker at {endpoint.host}:{endpoint.port} is registered under this id, with the data "
        f"directory {node.registration.directory_id}, not {directory_id}"
    )


def register(
    session: ZooKeeperSession, facts: Facts, seat: Seat, registration: Registration
) -> bool:
    """Take the place under `/brokers/ids`, if nothing conflicts with that.

    False if there was nothing to do; else what was read of the brokers is out of date.

    Raises:
        RegistryUnavailable: it may have been done or not.
    """
    node = facts.brokers.get(seat.broker_id)
    if node is not None and node.session_id == seat.session_id:
        return False
    path = paths.broker(seat.broker_id)
    content = format_broker(registration, _now_ms())
    try:
        if node is not None:
            _log.info("%s was left by a process that is dead; it is replaced", path)
            session.ask_once(lambda client: client.delete_async(path, node.version))
        session.ask_once(lambda client: client.create_async(path, content, ephemeral=True))
    except (NodeExistsError, NoNodeError, BadVersionError):
        _log.info("%s has changed meanwhile", path)
    return True


def run_for_controller(session: ZooKeeperSession, facts: Facts, seat: Seat) -> bool:
    """Become the controller if there is none, and this broker is registered.

    False if there was nothing to do; else what was read of the controller is out of date.

    Raises:
        RegistryUnavailable: it may have been done or not.
    """
    office = facts.controller
    is_stale = (
        office is not None
        and office.broker_id == seat.broker_id
        and office.session_id != seat.session_id
    )
    if seat.broker_id not in live_brokers(facts, seat) or not (office is None or is_stale):
        return False
    content = format_controller(seat.broker_id, _now_ms())
    try:
        if is_stale:
            session.ask_once(lambda client: client.delete_async(paths.CONTROLLER))
        session.ask_once(
            lambda client: client.create_async(paths.CONTROLLER, content, ephemeral=True)
        )
    except (NodeExistsError, NoNodeError):
        _log.info("another broker became the controller")
    return True


def _now_ms() -> int:
    return int(time.time() * 1000)
