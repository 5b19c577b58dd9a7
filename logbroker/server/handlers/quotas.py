"""DescribeClientQuotas and AlterClientQuotas: quotas of clients and addresses (KIP-546)."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final

from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from logbroker.errors import InvalidRequest, RequestRefused
from logbroker.quotas.entities import (
    DEFAULT,
    QuotaEntity,
    QuotaKey,
    Quotas,
    check_entity,
    check_quota,
    parse_ip,
    parse_key,
)
from logbroker.registry.registry import Registry
from logbroker.server.connection import Connection
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.wire.error_codes import code_and_message

IP: Final = "ip"

_Described = DescribeClientQuotasResponse.EntryData
_Altered = AlterClientQuotasResponse.EntryData

ENTITY_TYPES: Final = ("user", "client-id", IP)
"""The parts of an entity, in the order of `QuotaEntity`."""

CHANGES_MAX: Final = 1_000
"""The entities of one AlterClientQuotas request."""

Change = dict[QuotaKey, float | None]
"""The new value of each quota; None removes it."""


class MatchType(IntEnum):
    """How a filter selects the names of an entity type."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaHandlers:
    """Reads and changes the client quotas of the cluster."""

    def __init__(
        self, partitions: Partitions, registry: Registry, registry_thread: RegistryThread
    ) -> None:
        self._partitions = partitions
        self._registry = registry
        self._registry_thread = registry_thread

    def describe(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        """Return the entities that match every component of the filter, with their quotas."""
        quotas = self._partitions.view.quotas
        try:
            matches = _filter(request)
        except RequestRefused as refusal:
            return refuse_describe(request, refusal)
        return DescribeClientQuotasResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            entries=[_entry(each, quotas) for each in quotas if matches(each)],
        )

    def alter(
        self,
        request: AlterClientQuotasRequest,
        connection: Connection,
        respond: Callable[[AlterClientQuotasResponse], None],
    ) -> None:
        """Apply the changes of each valid entity; the others get their error."""
        entries = request.entries
        parsed = [_parse(entry, len(entries)) for entry in entries]
        changes = [each for each in parsed if not isinstance(each, RequestRefused)]

        def apply(quotas: Quotas) -> Quotas:
            for entity, change in changes:
                quotas = quotas.with_values(entity, _changed(quotas.values(entity), change))
            return quotas

        def store() -> None:
            if request.validate_only:
                apply(self._registry.view.quotas)
            elif changes:
                self._registry.change_quotas(apply)

        def stored(refusal: RequestRefused | None) -> None:
            outcomes = [each if isinstance(each, RequestRefused) else refusal for each in parsed]
            respond(_altered(request, outcomes))

        self._registry_thread.submit(connection, store, stored)


def refuse_describe(
    _request: DescribeClientQuotasRequest, refusal: RequestRefused
) -> DescribeClientQuotasResponse:
    """Return the response that refuses a whole DescribeClientQuotas request."""
    code, reason = code_and_message(refusal)
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=reason, entries=None
    )


def refuse_alter(
    request: AlterClientQuotasRequest, refusal: RequestRefused
) -> AlterClientQuotasResponse:
    """Return the response that refuses every entity of an AlterClientQuotas request."""
    return _altered(request, [refusal] * len(request.entries))


def _altered(request: Any, outcomes: Sequence[RequestRefused | None]) -> AlterClientQuotasResponse:
    entries = []
    for entry, outcome in zip(request.entries, outcomes, strict=True):
        code, reason = code_and_message(outcome)
        entity = [
            _Altered.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ]
        entries.append(_Altered(error_code=code, error_message=reason, entity=entity))
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)


def _entry(entity: QuotaEntity, quotas: Quotas) -> _Described:
    return _Described(
        entity=[
            _Described.EntityData(entity_type=kind, entity_name=name or None)
            for kind, name in zip(ENTITY_TYPES, entity, strict=True)
            if name is not None
        ],
        values=[
            _Described.ValueData(key=key.value, value=value)
            for key, value in sorted(quotas.values(entity).items())
        ],
    )


def _filter(request: DescribeClientQuotasRequest) -> Callable[[QuotaEntity], bool]:
    """Return whether an entity matches a request.

    Raises:
        InvalidRequest: a component is malformed, or two name the same entity type.
    """
    names: dict[str, str | None] = {}
    for component in request.components:
        kind = _check_type(component.entity_type)
        if kind in names:
            raise InvalidRequest(f"the filter names entity type {kind} twice")
        names[kind] = _matched_name(component)

    def matches(entity: QuotaEntity) -> bool:
        for kind, name in zip(ENTITY_TYPES, entity, strict=True):
            if kind not in names:
                if request.strict and name is not None:
                    return False
            elif name is None or names[kind] not in (None, name):
                return False
        return True

    return matches


def _matched_name(component: Any) -> str | None:
    """Return the name that a component of a filter selects; None selects every name.

    Raises:
        InvalidRequest: match type and name do not fit.
    """
    name: str | None = component.match
    if component.match_type == MatchType.EXACT:
        if not name:
            raise InvalidRequest(f"the filter has no name of type {component.entity_type}")
        return parse_ip(name) if component.entity_type == IP else name
    if component.match_type not in tuple(MatchType):
        allowed = ", ".join(str(int(each)) for each in MatchType)
        raise InvalidRequest(f"match type is {component.match_type}; allowed: {allowed}")
    if name is not None:
        raise InvalidRequest(f"match type {component.match_type} allows no name: {name!r}")
    return DEFAULT if component.match_type == MatchType.DEFAULT else None


def _parse(entry: Any, entries: int) -> tuple[QuotaEntity, Change] | RequestRefused:
    try:
        if entries > CHANGES_MAX:
            raise InvalidRequest(f"{entries} entities; allowed: up to {CHANGES_MAX}")
        entity = _parse_entity(entry.entity)
        return entity, _parse_change(entity, entry.ops)
    except RequestRefused as refusal:
        return refusal


def _parse_entity(parts: Sequence[Any]) -> QuotaEntity:
    names: dict[str, str] = {}
    for part in parts:
        kind = _check_type(part.entity_type)
        if kind in names:
            raise InvalidRequest(f"the entity has two names of type {kind}")
        if part.entity_name == "":
            raise InvalidRequest(f"the {kind} is empty; allowed: a name, or null for the default")
        name = part.entity_name or DEFAULT
        names[kind] = parse_ip(name) if kind == IP and name else name
    entity = QuotaEntity(*map(names.get, ENTITY_TYPES))
    check_entity(entity)
    return entity


def _parse_change(entity: QuotaEntity, operations: Sequence[Any]) -> Change:
    change: Change = {}
    for each in operations:
        key = parse_key(each.key)
        if not each.remove:
            check_quota(entity, key, each.value)
        change[key] = None if each.remove else each.value
    return change


def _changed(values: Any, change: Change) -> dict[QuotaKey, float]:
    return {key: value for key, value in {**values, **change}.items() if value is not None}


def _check_type(kind: str) -> str:
    if kind not in ENTITY_TYPES:
        allowed = ", ".join(ENTITY_TYPES)
        raise InvalidRequest(f"unsupported entity type {kind!r}; allowed: {allowed}")
    return kind
