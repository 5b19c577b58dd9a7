"""Requests about client quotas, encoded by kafka-python, which has no client for them."""

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from tests.support.kafka.raw_connection import RawConnection

QUOTAS_VERSION = 1
EXACT, DEFAULT, ANY = 0, 1, 2

Entity = Mapping[str, str | None]
"""Names by entity type; None is the default."""

_Entry = AlterClientQuotasRequest.EntryData


def alteration(entity: Entity, values: Mapping[str, float | None]) -> Any:
    """Return one change; None removes a quota."""
    return _Entry(
        entity=[_Entry.EntityData(entity_type=kind, entity_name=n) for kind, n in entity.items()],
        ops=[
            _Entry.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


def alter_quotas(
    connection: RawConnection,
    *alterations: Any,
    validate_only: bool = False,
    version: int = QUOTAS_VERSION,
) -> list[tuple[int, str | None]]:
    """Change quotas; returns the error code and message of each change."""
    request = AlterClientQuotasRequest(entries=list(alterations), validate_only=validate_only)
    answer = connection.ask(request, AlterClientQuotasResponse, version)
    return [(each.error_code, each.error_message) for each in answer.entries]


def describe_quotas(
    connection: RawConnection,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = QUOTAS_VERSION,
) -> Any:
    """Return the response for a filter of entity types, match types and names."""
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[
            component(entity_type=kind, match_type=match_type, match=name)
            for kind, match_type, name in components
        ],
        strict=strict,
    )
    return connection.ask(request, DescribeClientQuotasResponse, version)


def described(answer: Any) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Return the entities of a response with their quotas."""
    assert answer.error_code == 0, answer.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries
    ]
