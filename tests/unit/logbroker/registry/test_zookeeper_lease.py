from logbroker.registry.zookeeper.lease import (
    LEASE_PER_TIMEOUT,
    RENEWAL_PER_TIMEOUT,
    SessionLease,
)

SESSION_S = 12.0
LENGTH_S = SESSION_S * LEASE_PER_TIMEOUT


def test_a_lease_holds_from_before_its_proof_was_asked_for_and_shorter_than_its_session() -> None:
    lease = SessionLease(7, SESSION_S, sent_s=100.0)
    assert lease.is_valid(100.0)
    assert lease.is_valid(100.0 + LENGTH_S - 0.001)
    assert not lease.is_valid(100.0 + LENGTH_S)


def test_a_renewal_and_half_a_tick_fit_in_what_is_left_of_the_session() -> None:
    # No session is granted less than two ticks, so half a tick is a quarter of it at most.
    assert RENEWAL_PER_TIMEOUT + 1 / 4 < 1 - LEASE_PER_TIMEOUT


def test_a_proof_renews_the_lease() -> None:
    lease = SessionLease(7, SESSION_S, sent_s=100.0)
    lease.renew(sent_s=103.0, connection=lease.connection)
    assert lease.is_valid(102.0 + LENGTH_S)
    assert not lease.is_valid(103.0 + LENGTH_S)


def test_a_lease_does_not_hold_while_the_connection_is_broken() -> None:
    lease = SessionLease(7, SESSION_S, sent_s=100.0)
    lease.suspend()
    assert not lease.is_valid(100.0)


def test_a_proof_over_the_next_connection_makes_it_hold_again() -> None:
    lease = SessionLease(7, SESSION_S, sent_s=100.0)
    lease.suspend()
    lease.renew(sent_s=101.0, connection=lease.connection)
    assert lease.is_valid(101.0)


def test_a_proof_that_was_asked_for_over_a_connection_that_broke_is_void() -> None:
    lease = SessionLease(7, SESSION_S, sent_s=100.0)
    connection = lease.connection
    lease.suspend()
    lease.renew(sent_s=101.0, connection=connection)
    assert not lease.is_valid(101.0)


def test_nothing_renews_a_lease_that_has_ended() -> None:
    lease = SessionLease(7, SESSION_S, sent_s=100.0)
    lease.end()
    lease.renew(sent_s=101.0, connection=lease.connection)
    assert not lease.is_valid(101.0)
