"""Client quotas, read and changed through any broker; librdkafka has no such request.

Source: KIP-546, Kafka protocol guide, "DescribeClientQuotas API" and "AlterClientQuotas API".
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)

from logbroker.client.errors import ChangeRefused
from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.parsing.errors import error_for_code
from logbroker.client.raw.retries import retry
from logbroker.quotas.entities import DEFAULT, QuotaEntity
from logbroker.wire.error_codes import INVALID_REQUEST, NONE

ENTITY_TYPES: Final = ("user", "client-id", "ip")
"""The parts of an entity, in the order of `QuotaEntity`."""

_Entry: Final = AlterClientQuotasRequest.EntryData


class DescribedQuotas(NamedTuple):
    """An entity and the values of its quotas by name, which another broker's version may add to."""

    entity: QuotaEntity
    values: dict[str, float]


def describe_quotas(cluster: RawCluster) -> list[DescribedQuotas]:
    """Return every user, client id and address with quotas.

    Raises:
        NotAuthorized: the user may not describe the cluster's configuration, or is rejected.
        BrokersUnavailable: no broker answered in time.
    """
    message = DescribeClientQuotasRequest(components=[], strict=False)

    def ask() -> list[DescribedQuotas]:
        answer = cluster.request_any(message)
        if answer.error_code != NONE:
            raise error_for_code("the client quotas", answer.error_code)
        return [_described(each) for each in answer.entries if _is_known(each)]

    return retry(cluster.start_timer("asking for client quotas"), ask)


def alter_quotas(
    cluster: RawCluster, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> None:
    """Set quotas of one entity; None removes a quota.

    Raises:
        ChangeRefused: a value or a name is not allowed.
        NotAuthorized: the user may not change the cluster's configuration, or is rejected.
        BrokersUnavailable: no broker answered in time.
    """
    entry = _Entry(
        entity=[
            _Entry.EntityData(entity_type=kind, entity_name=name or None)
            for kind, name in zip(ENTITY_TYPES, entity, strict=True)
            if name is not None
        ],
        ops=[
            _Entry.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    message = AlterClientQuotasRequest(entries=[entry], validate_only=False)

    def ask() -> None:
        (outcome,) = cluster.request_any(message).entries
        if outcome.error_code == INVALID_REQUEST:
            raise ChangeRefused(outcome.error_message)
        if outcome.error_code != NONE:
            raise error_for_code("the change of client quotas", outcome.error_code)

    retry(cluster.start_timer("changing client quotas"), ask)


def _is_known(entry: Any) -> bool:
    return all(part.entity_type in ENTITY_TYPES for part in entry.entity)


def _described(entry: Any) -> DescribedQuotas:
    names = {part.entity_type: part.entity_name or DEFAULT for part in entry.entity}
    entity = QuotaEntity(*map(names.get, ENTITY_TYPES))
    return DescribedQuotas(entity, {each.key: each.value for each in entry.values})
