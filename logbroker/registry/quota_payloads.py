"""The stored form of client quotas: one JSON document.

{"version": 1, "quotas": [{"user": "alice", "clientId": null, "values": {"producer_byte_rate": 1}}]}

A missing part of an entity (`user`, `clientId`, `ip`) is absent from its object; null is the
default entity.
"""

import json
from typing import Any, Final

from logbroker.errors import InvalidRequest
from logbroker.quotas.entities import (
    DEFAULT,
    QuotaEntity,
    Quotas,
    check_entity,
    check_quota,
    parse_key,
)

VERSION: Final = 1

_FIELDS: Final = ("user", "clientId", "ip")


def format_quotas(quotas: Quotas) -> bytes:
    """Encode the document with one line per entity, so that people can read and compare it."""
    lines = [json.dumps(_fields(entity, quotas)) for entity in quotas]
    return (f'{{"version": {VERSION}, "quotas": [\n' + ",\n".join(lines) + "\n]}\n").encode()


def parse_quotas(content: bytes) -> Quotas:
    """Decode a document; an empty one has no quotas.

    Raises:
        ValueError: the content is not such a document, or has another version.
    """
    if not content:
        return Quotas()
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise ValueError(f"unsupported version {document['version']!r}; allowed: {VERSION}")
        entities = ((_entity(each), each) for each in document["quotas"])
        return Quotas({entity: _values(entity, each) for entity, each in entities})
    except (KeyError, TypeError, AttributeError, InvalidRequest) as error:
        raise ValueError(f"a field is missing or invalid: {error}") from None


def _fields(entity: QuotaEntity, quotas: Quotas) -> dict[str, Any]:
    parts = {
        field: name or None for field, name in zip(_FIELDS, entity, strict=True) if name is not None
    }
    return {**parts, "values": dict(sorted(quotas.values(entity).items()))}


def _entity(fields: dict[str, Any]) -> QuotaEntity:
    names = [
        (DEFAULT if fields[each] is None else str(fields[each])) if each in fields else None
        for each in _FIELDS
    ]
    entity = QuotaEntity(*names)
    check_entity(entity)
    return entity


def _values(entity: QuotaEntity, fields: dict[str, Any]) -> dict[Any, float]:
    values = {parse_key(name): float(value) for name, value in fields["values"].items()}
    for key, value in values.items():
        check_quota(entity, key, value)
    return values
