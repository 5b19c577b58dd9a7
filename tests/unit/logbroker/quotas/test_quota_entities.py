"""Which quota covers a client, and which quotas are allowed."""

import math

import pytest

from logbroker.errors import InvalidRequest
from logbroker.quotas import entities
from logbroker.quotas.entities import (
    DEFAULT,
    QuotaEntity,
    QuotaKey,
    QuotaLimit,
    Quotas,
    check_entity,
    check_quota,
    parse_ip,
    parse_key,
)
from logbroker.registry.quota_payloads import format_quotas, parse_quotas

PRODUCE, CONNECTIONS = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONNECTION_CREATION_RATE
ALICE, ADDRESS = QuotaEntity("alice", None), QuotaEntity(None, None, "192.0.2.7")

PRECEDENCE = [
    (QuotaEntity("alice", "app"), ("alice", "app")),
    (QuotaEntity("alice", DEFAULT), ("alice", "app")),
    (QuotaEntity("alice", None), ("alice", None)),
    (QuotaEntity(DEFAULT, "app"), ("alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), ("alice", "app")),
    (QuotaEntity(DEFAULT, None), ("alice", None)),
    (QuotaEntity(None, "app"), (None, "app")),
    (QuotaEntity(None, DEFAULT), (None, "app")),
]
"""Kafka's order of precedence, and the user and client id that share the limit (KIP-55)."""


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_entity_with_the_quota_wins(first: int) -> None:
    quotas = Quotas()
    for place, (entity, _) in enumerate(PRECEDENCE[first:], first):
        quotas = quotas.with_values(entity, {PRODUCE: 100.0 + place})
    _, sharing = PRECEDENCE[first]
    assert quotas.find_limit(PRODUCE, "alice", "app") == QuotaLimit(100.0 + first, *sharing)


def test_an_entity_without_the_quota_is_passed_over() -> None:
    quotas = Quotas(
        {
            QuotaEntity("alice", None): {QuotaKey.CONSUMER_BYTE_RATE: 5.0},
            QuotaEntity(None, DEFAULT): {PRODUCE: 7.0},
        }
    )
    assert quotas.find_limit(PRODUCE, "alice", "app") == QuotaLimit(7.0, None, "app")
    assert quotas.find_limit(QuotaKey.REQUEST_PERCENTAGE, "alice", "app") is None


def test_other_users_and_client_ids_have_no_limit() -> None:
    quotas = Quotas({entity: {PRODUCE: 1.0} for entity, _ in PRECEDENCE[:1]})
    assert quotas.find_limit(PRODUCE, "bob", "app") is None
    assert quotas.find_limit(PRODUCE, "alice", "other") is None


def test_an_entity_without_values_is_removed() -> None:
    entity = QuotaEntity("alice", None)
    quotas = Quotas({entity: {PRODUCE: 1.0}})
    assert quotas.with_values(entity, {}) == Quotas()
    assert list(quotas) == [entity]


def test_the_entities_of_a_cluster_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities, "ENTITIES_MAX", 1)
    quotas = Quotas({QuotaEntity("alice", None): {PRODUCE: 1.0}})
    assert quotas.with_values(QuotaEntity("alice", None), {PRODUCE: 2.0})
    with pytest.raises(InvalidRequest, match="allowed: up to 1"):
        quotas.with_values(QuotaEntity("bob", None), {PRODUCE: 2.0})


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_is_positive_and_finite(value: float) -> None:
    with pytest.raises(InvalidRequest, match="more than 0"):
        check_quota(ALICE, QuotaKey.REQUEST_PERCENTAGE, value)


def test_rates_of_bytes_and_connections_are_whole_numbers() -> None:
    check_quota(ALICE, PRODUCE, 1024.0)
    check_quota(ALICE, QuotaKey.REQUEST_PERCENTAGE, 0.5)
    check_quota(ADDRESS, CONNECTIONS, 2.0**31 - 1)
    for entity, key, value in (
        (ALICE, PRODUCE, 0.5),
        (ALICE, PRODUCE, 2.0**64),
        (ADDRESS, CONNECTIONS, 0.5),
        (ADDRESS, CONNECTIONS, 2.0**31),
    ):
        with pytest.raises(InvalidRequest, match="whole number"):
            check_quota(entity, key, value)


@pytest.mark.parametrize(("entity", "key"), [(ADDRESS, PRODUCE), (ALICE, CONNECTIONS)])
def test_addresses_and_clients_have_different_quotas(entity: QuotaEntity, key: QuotaKey) -> None:
    with pytest.raises(InvalidRequest, match="not a quota of this entity"):
        check_quota(entity, key, 1.0)


def test_an_address_has_its_own_rate_of_connections_or_the_default_one() -> None:
    default = QuotaEntity(None, None, DEFAULT)
    quotas = Quotas({ADDRESS: {CONNECTIONS: 5.0}})
    assert quotas.find_connection_rate("192.0.2.7") == 5
    assert quotas.find_connection_rate("192.0.2.8") is None
    quotas = quotas.with_values(default, {CONNECTIONS: 7.0})
    assert quotas.find_connection_rate("192.0.2.7") == 5
    assert quotas.find_connection_rate("192.0.2.8") == 7
    assert quotas.find_limit(CONNECTIONS, "alice", "app") is None
    assert list(quotas) == [default, ADDRESS]


def test_an_address_has_one_form() -> None:
    assert parse_ip("2001:DB8:0::7") == "2001:db8::7"
    for text in ("host.example", "192.0.2", "192.0.2.0/24"):
        with pytest.raises(InvalidRequest, match="allowed: an IPv4 or IPv6 address"):
            parse_ip(text)


def test_an_unknown_quota_is_named_with_what_is_allowed() -> None:
    with pytest.raises(InvalidRequest, match="unknown quota 'bytes'; allowed: producer_byte_rate"):
        parse_key("bytes")


def test_an_entity_needs_a_name_of_limited_length() -> None:
    with pytest.raises(InvalidRequest, match="is empty"):
        check_entity(QuotaEntity(None, None))
    with pytest.raises(InvalidRequest, match="allowed: up to"):
        check_entity(QuotaEntity("x" * (entities.NAME_CHARS_MAX + 1), None))
    with pytest.raises(InvalidRequest, match="allowed: ip alone"):
        check_entity(QuotaEntity("alice", None, "192.0.2.7"))


def test_the_stored_document_keeps_every_entity() -> None:
    quotas = Quotas(
        {
            entity: {PRODUCE: place + 1.0, QuotaKey.CONTROLLER_MUTATION_RATE: 0.25}
            for place, (entity, _) in enumerate(PRECEDENCE)
        }
    ).with_values(ADDRESS, {CONNECTIONS: 3.0})
    assert parse_quotas(format_quotas(quotas)) == quotas
    assert parse_quotas(b"") == Quotas()


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[",
        b'{"version": 2, "quotas": []}',
        b'{"version": 1, "quotas": [{"values": {}}]}',
        b'{"version": 1, "quotas": [{"user": "a"}]}',
        b'{"version": 1, "quotas": [{"user": "a", "values": {"unknown": 1}}]}',
        b'{"version": 1, "quotas": [{"user": "a", "values": {"producer_byte_rate": -1}}]}',
        b'{"version": 1, "quotas": [{"ip": null, "values": {"producer_byte_rate": 1}}]}',
    ],
)
def test_a_malformed_document_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"invalid|unsupported|Expecting"):
        parse_quotas(content)
