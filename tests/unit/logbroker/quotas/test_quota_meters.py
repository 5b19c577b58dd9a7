"""The meters of clients: who shares one, and what follows from it."""

import pytest

from logbroker.quotas import meters as module
from logbroker.quotas.entities import DEFAULT, QuotaEntity, QuotaKey, Quotas
from logbroker.quotas.meters import THROTTLE_MS_MAX, ClientMeters, QuotaMeters, milliseconds

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUEST, MUTATION = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECT = QuotaKey.CONNECTION_CREATION_RATE


def all_meters(entity: QuotaEntity, key: QuotaKey, limit: float) -> QuotaMeters:
    found = QuotaMeters()
    assert found.use(Quotas({entity: {key: limit}}))
    return found


def of_alice(key: QuotaKey, limit: float) -> tuple[QuotaMeters, ClientMeters]:
    found = all_meters(QuotaEntity("alice", None), key, limit)
    client = found.find("alice", "app", 0.0)
    assert client is not None
    return found, client


def test_without_quotas_nothing_is_looked_up() -> None:
    found = QuotaMeters()
    assert not found.use(Quotas())
    assert not found.is_active
    assert found.find("alice", "app", 0.0) is None


def test_a_client_that_no_quota_covers_has_no_meters() -> None:
    found, _ = of_alice(PRODUCE, 1.0)
    assert found.is_active
    assert found.find("bob", "app", 0.0) is None


def test_the_client_ids_of_a_user_share_its_limit() -> None:
    found, client = of_alice(PRODUCE, 100.0)
    assert client.record_produce(1_000, 0.0) == 0
    other = found.find("alice", "other", 0.0)
    assert other is not None
    assert other.record_produce(1_000, 0.0) == 10


def test_each_client_id_has_the_default_limit_for_itself() -> None:
    found = all_meters(QuotaEntity(None, DEFAULT), PRODUCE, 100.0)
    for client_id in ("first", "second"):
        client = found.find("alice", client_id, 0.0)
        assert client is not None
        assert client.record_produce(1_000, 0.0) == 0
        same = found.find("bob", client_id, 0.0)
        assert same is not None
        assert same.record_produce(1_000, 0.0) == 10


def test_a_fetch_over_the_limit_is_refused_and_does_not_count() -> None:
    found, client = of_alice(CONSUME, 100.0)
    assert client.fetch_bytes_max(5_000) == 1_000
    assert client.admit_fetch(900, 0.0) == (True, 0.0)
    assert client.admit_fetch(300, 0.0) == (False, 2.0)
    assert client.admit_fetch(100, 0.0) == (True, 0.0)
    assert found.counts.requests[CONSUME] == 1
    assert found.counts.seconds[CONSUME] == 2


def test_a_batch_above_the_limit_of_the_window_is_sent_if_it_is_the_first() -> None:
    _, client = of_alice(CONSUME, 100.0)
    assert client.admit_fetch(4_000, 0.0) == (True, 30.0)
    assert client.admit_fetch(4_000, 1.0)[0] is False
    assert client.admit_fetch(4_000, 11.0) == (True, 30.0)


def test_a_request_is_throttled_for_the_time_of_those_before_and_for_at_most_a_second() -> None:
    found, client = of_alice(REQUEST, 10.0)
    assert client.request_throttle_s(0.0) == 0
    client.record_request(1.0, 0.0)
    assert client.request_throttle_s(0.0) == 0
    client.record_request(0.05, 0.0)
    assert client.request_throttle_s(0.0) == pytest.approx(0.5)
    client.record_request(5.0, 0.0)
    assert client.request_throttle_s(0.0) == 1
    assert found.counts.requests[REQUEST] == 2


def test_strict_mutations_are_refused_and_older_ones_only_delayed() -> None:
    _, client = of_alice(MUTATION, 1.0)
    assert client.take_mutations(15, 0.0, is_strict=True)
    assert client.mutation_throttle_s(0.0) == 4
    assert not client.take_mutations(1, 0.0, is_strict=True)
    assert client.take_mutations(1, 0.0, is_strict=False)
    assert client.mutation_throttle_s(0.0) == 5
    assert client.take_mutations(1, 5.0, is_strict=True)


def test_other_quotas_limit_nothing() -> None:
    _, client = of_alice(MUTATION, 1.0)
    assert client.record_produce(10**9, 0.0) == 0
    assert client.admit_fetch(10**9, 0.0) == (True, 0.0)
    assert client.fetch_bytes_max(10**9) == 10**9
    client.record_request(100.0, 0.0)
    assert client.request_throttle_s(0.0) == 0
    _, client = of_alice(PRODUCE, 1.0)
    assert client.take_mutations(10**9, 0.0, is_strict=True)
    assert client.mutation_throttle_s(0.0) == 0


def test_a_changed_limit_holds_for_what_was_recorded() -> None:
    found, client = of_alice(PRODUCE, 1_000.0)
    assert client.record_produce(2_000, 0.0) == 0
    assert found.use(Quotas({QuotaEntity("alice", None): {PRODUCE: 100.0}}))
    changed = found.find("alice", "app", 0.0)
    assert changed is not None
    assert changed.record_produce(0, 0.0) == 10


def test_clients_that_change_their_id_do_not_take_memory_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "METERS_MAX", 10)
    found = all_meters(QuotaEntity(None, DEFAULT), PRODUCE, 100.0)
    for number in range(100):
        client = found.find("alice", f"client-{number}", 0.0)
        assert client is not None
        client.record_produce(2_000, 0.0)
    assert len(found._rates) <= 10
    assert len(found._clients) <= 10
    last = found.find("alice", "client-99", 0.0)
    assert last is not None
    assert last.record_produce(0, 0.0) == 10


def test_connections_over_the_rate_are_refused_and_do_not_count() -> None:
    found = all_meters(QuotaEntity(None, None, DEFAULT), CONNECT, 2.0)
    assert [found.admit_connection("192.0.2.7", 0.0) for _ in range(20)] == [0.0] * 20
    assert [found.admit_connection("192.0.2.7", 0.0) for _ in range(3)] == pytest.approx([0.5] * 3)
    assert found.admit_connection("192.0.2.8", 0.0) == 0
    assert found.counts.requests[CONNECT] == 3
    # The ones of the first second leave the window together.
    assert found.admit_connection("192.0.2.7", 11.0) == 0
    assert found.find("alice", "app", 0.0) is None


def test_a_refused_connection_stays_for_at_most_a_second() -> None:
    address = QuotaEntity(None, None, "192.0.2.7")
    found = all_meters(address, CONNECT, 100.0)
    for _ in range(1_000):
        found.admit_connection("192.0.2.7", 0.0)
    found.use(Quotas({address: {CONNECT: 1.0}}))
    assert found.admit_connection("192.0.2.7", 0.0) == 1


def test_addresses_do_not_take_memory_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "METERS_MAX", 10)
    found = all_meters(QuotaEntity(None, None, DEFAULT), CONNECT, 1.0)
    for number in range(100):
        found.admit_connection(f"192.0.2.{number}", 0.0)
    assert len(found._connections) <= 10


def test_a_throttle_time_fits_the_protocol() -> None:
    assert milliseconds(0.0004) == 0
    assert milliseconds(1.2346) == 1_235
    assert milliseconds(1e30) == THROTTLE_MS_MAX
