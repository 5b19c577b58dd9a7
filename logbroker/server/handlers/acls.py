"""DescribeAcls, CreateAcls and DeleteAcls: the access control lists of the cluster (KIP-140)."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from kafka.protocol.admin.acl import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

from logbroker.errors import InvalidRequest, RequestRefused, SecurityDisabled
from logbroker.registry.registry import Registry
from logbroker.security.acl import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    check_acl,
    sort_acls,
)
from logbroker.server.connection import Connection
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.wire.error_codes import code_and_message

NO_AUTHORIZER: Final = "the broker has no authorizer; start it with --authorizer"

_Resource = DescribeAclsResponse.DescribeAclsResource
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult


class AclHandlers:
    """Reads and changes the ACLs of the cluster; refuses both without an authorizer."""

    def __init__(
        self,
        partitions: Partitions,
        registry: Registry,
        registry_thread: RegistryThread,
        *,
        is_enabled: bool,
    ) -> None:
        self._partitions = partitions
        self._registry = registry
        self._registry_thread = registry_thread
        self._is_enabled = is_enabled

    def describe(self, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """Return the ACLs that match a filter, grouped by resource pattern."""
        found: list[Acl] = []
        refusal: RequestRefused | None = None
        try:
            self._check_enabled()
            wanted = _filter(request.resource_type_filter, request.resource_name_filter, request)
            found = sort_acls(filter(wanted.matches, self._partitions.view.acls.acls))
        except RequestRefused as error:
            refusal = error
        code, reason = code_and_message(refusal)
        return DescribeAclsResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=reason,
            resources=[
                _Resource(
                    resource_type=kind,
                    resource_name=name,
                    pattern_type=pattern,
                    acls=[
                        _Resource.AclDescription(
                            principal=acl.principal,
                            host=acl.host,
                            operation=acl.operation,
                            permission_type=acl.permission,
                        )
                        for acl in acls
                    ],
                )
                for (kind, name, pattern), acls in groupby(found, lambda acl: acl[:3])
            ],
        )

    def create(
        self,
        request: CreateAclsRequest,
        connection: Connection,
        respond: Callable[[CreateAclsResponse], None],
    ) -> None:
        """Store the valid ACLs of a request; an ACL that exists is no error."""
        parsed = [self._parse(creation) for creation in request.creations]
        wanted = frozenset(acl for acl in parsed if isinstance(acl, Acl))

        def store() -> None:
            if wanted:
                self._change(lambda acls: acls | wanted)

        def stored(refusal: RequestRefused | None) -> None:
            outcomes = [each if isinstance(each, RequestRefused) else refusal for each in parsed]
            respond(CreateAclsResponse(throttle_time_ms=0, results=_creations(outcomes)))

        self._registry_thread.submit(connection, store, stored)

    def delete(
        self,
        request: DeleteAclsRequest,
        connection: Connection,
        respond: Callable[[DeleteAclsResponse], None],
    ) -> None:
        """Delete the ACLs that match the filters of a request."""
        filters = [self._parse_filter(each) for each in request.filters]
        deleted: frozenset[Acl] = frozenset()

        def remove_matching(acls: frozenset[Acl]) -> frozenset[Acl]:
            nonlocal deleted
            deleted = frozenset(
                acl
                for acl in acls
                if any(each.matches(acl) for each in filters if isinstance(each, AclFilter))
            )
            return acls - deleted

        def removed(refusal: RequestRefused | None) -> None:
            results = [_deletion(each, refusal, deleted) for each in filters]
            respond(DeleteAclsResponse(throttle_time_ms=0, filter_results=results))

        self._registry_thread.submit(connection, lambda: self._change(remove_matching), removed)

    def _change(self, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        self._check_enabled()
        self._registry.change_acls(change)

    def _check_enabled(self) -> None:
        if not self._is_enabled:
            raise SecurityDisabled(NO_AUTHORIZER)

    def _parse(self, creation: Any) -> Acl | RequestRefused:
        try:
            self._check_enabled()
            acl = Acl(
                _member(AclResourceType, creation.resource_type),
                creation.resource_name,
                _member(PatternType, creation.resource_pattern_type),
                creation.principal,
                creation.host,
                _member(AclOperation, creation.operation),
                _member(Permission, creation.permission_type),
            )
            check_acl(acl)
        except RequestRefused as refusal:
            return refusal
        return acl

    def _parse_filter(self, wanted: Any) -> AclFilter | RequestRefused:
        try:
            return _filter(wanted.resource_type_filter, wanted.resource_name_filter, wanted)
        except RequestRefused as refusal:
            return refusal


def _filter(resource_type: int, name: str | None, fields: Any) -> AclFilter:
    found = AclFilter(
        _member(AclResourceType, resource_type),
        name,
        _member(PatternType, fields.pattern_type_filter),
        fields.principal_filter,
        fields.host_filter,
        _member(AclOperation, fields.operation),
        _member(Permission, fields.permission_type),
    )
    if 0 in (found.resource_type, found.pattern_type, found.operation, found.permission):
        raise InvalidRequest("the filter has an unknown element")
    return found


def _member(kind: Any, value: int) -> Any:
    """Return a member of an enum; an unknown value is refused later as UNKNOWN, as in Kafka."""
    return kind(value) if value in kind._value2member_map_ else kind.UNKNOWN


def _creations(outcomes: Sequence[RequestRefused | None]) -> list[Any]:
    pairs = map(code_and_message, outcomes)
    result = CreateAclsResponse.AclCreationResult
    return [result(error_code=code, error_message=reason) for code, reason in pairs]


def _deletion(
    wanted: AclFilter | RequestRefused, refusal: RequestRefused | None, deleted: frozenset[Acl]
) -> _Deleted:
    code, reason = code_and_message(wanted if isinstance(wanted, RequestRefused) else refusal)
    matching = (
        sort_acls(filter(wanted.matches, deleted))
        if isinstance(wanted, AclFilter) and not code
        else []
    )
    return _Deleted(
        error_code=code,
        error_message=reason,
        matching_acls=[
            _Deleted.DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in matching
        ],
    )
