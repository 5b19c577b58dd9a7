"""Decides what a principal may do, by access control lists and super users.

Source: Apache Kafka, `StandardAuthorizer` and `AclAuthorizer`; KIP-11, KIP-290, KIP-679.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from logbroker.security.acl import (
    ANY,
    CLUSTER_NAME,
    GRANTED_BY,
    OPERATIONS_OF,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from logbroker.security.principal import Principal

DECISIONS_MAX: Final = 65_536
"""The number of cached decisions; further ones clear the cache."""

CACHED_NAME_MAX: Final = 249
"""The length of a topic's name. Other names may have 32,767 characters, which would fill memory."""

_Entries = dict[str, list[Acl]]
_Decisions = dict[tuple[Principal, str, AclOperation, AclResourceType, str], bool]


class AclIndex:
    """An immutable set of ACLs with an index by resource type and name."""

    __slots__ = ("_literal", "_prefixed", "acls")

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.acls: Final = frozenset(acls)
        self._literal: dict[AclResourceType, _Entries] = {}
        self._prefixed: dict[AclResourceType, _Entries] = {}
        for acl in self.acls:
            is_prefixed = acl.pattern_type == PatternType.PREFIXED
            by_type = self._prefixed if is_prefixed else self._literal
            by_type.setdefault(acl.resource_type, {}).setdefault(acl.name, []).append(acl)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclIndex) and self.acls == other.acls

    def __hash__(self) -> int:
        return hash(self.acls)

    def __len__(self) -> int:
        return len(self.acls)

    def find(self, resource_type: AclResourceType, name: str) -> Iterator[Acl]:
        """Yield the ACLs that cover one resource, at a cost that depends on the name's length."""
        literal = self._literal.get(resource_type, {})
        yield from literal.get(name, ())
        if name != ANY:
            yield from literal.get(ANY, ())
        prefixed = self._prefixed.get(resource_type)
        if prefixed:
            for end in range(len(name) + 1):
                yield from prefixed.get(name[:end], ())

    def of_type(self, resource_type: AclResourceType) -> Iterator[Acl]:
        """Yield the ACLs of one type of resource."""
        for by_type in (self._literal, self._prefixed):
            for acls in by_type.get(resource_type, {}).values():
                yield from acls


NO_ACLS: Final = AclIndex()


class Authorizer:
    """Decides by a set of ACLs that is replaced as a whole; safe on any thread.

    A denial outweighs a permission. A resource without any ACL is closed, unless
    `allow_if_no_acl` (Kafka's `allow.everyone.if.no.acl.found`). Super users may do everything.
    """

    def __init__(
        self, super_users: Collection[Principal] = (), *, allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        # Replaced together, so that no decision by older ACLs is cached for newer ones.
        self._state: tuple[AclIndex, _Decisions] = NO_ACLS, {}

    @property
    def acls(self) -> AclIndex:
        """The ACLs that decide now."""
        return self._state[0]

    def use(self, index: AclIndex) -> None:
        """Decide by `index` from now on."""
        self._state = index, {}

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """Return whether `principal`, connected from `host`, may do `operation`."""
        key = (principal, host, operation, resource_type, name)
        index, decisions = self._state
        decision = decisions.get(key)
        if decision is None:
            decision = self._decide(index, *key)
            if len(name) > CACHED_NAME_MAX:
                return decision
            if len(decisions) >= DECISIONS_MAX:
                decisions.clear()
            decisions[key] = decision
        return decision

    def is_allowed_for_any(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
    ) -> bool:
        """Return whether `principal` may do `operation` with some resource of a type (KIP-679)."""
        if principal in self._super_users:
            return True
        matching = [
            acl
            for acl in self.acls.of_type(resource_type)
            if _names(acl, principal, host) and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl for acl in matching if acl.permission == Permission.DENY]
        if any(_covers_all(acl) for acl in denied):
            return False
        return self._allow_if_no_acl or any(
            acl.permission == Permission.ALLOW
            and not any(_is_within(acl, outer) for outer in denied)
            for acl in matching
        )

    def allowed_operations(
        self, principal: Principal, host: str, resource_type: AclResourceType, name: str
    ) -> set[AclOperation]:
        """Return what `principal` may do with one resource."""
        return {
            operation
            for operation in OPERATIONS_OF[resource_type]
            if self.is_allowed(principal, host, operation, resource_type, name)
        }

    def _decide(
        self,
        index: AclIndex,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        acls = list(index.find(resource_type, name))
        if not acls:
            return self._allow_if_no_acl
        granting = {AclOperation.ALL, *GRANTED_BY.get(operation, (operation,))}
        is_allowed = False
        for acl in acls:
            if not _names(acl, principal, host):
                continue
            if acl.permission == Permission.DENY:
                if acl.operation in (operation, AclOperation.ALL):
                    return False
            elif acl.operation in granting:
                is_allowed = True
        return is_allowed


def resource_name(resource_type: AclResourceType, name: str) -> str:
    """Return how a message names a resource, such as `Topic clicks`."""
    if resource_type == AclResourceType.CLUSTER:
        return f"Cluster {CLUSTER_NAME}"
    return f"{resource_type.name.title().replace('_', '')} {name}"


def _names(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.host in (host, ANY) and acl.principal in (
        str(principal),
        f"{principal.kind}:{ANY}",
    )


def _covers_all(acl: Acl) -> bool:
    return acl.pattern_type == PatternType.LITERAL and acl.name == ANY


def _is_within(inner: Acl, outer: Acl) -> bool:
    """Return whether `outer` covers every resource of `inner`, apart from `*`."""
    if outer.pattern_type == PatternType.PREFIXED:
        return inner.name.startswith(outer.name) and not _covers_all(inner)
    return inner.pattern_type == PatternType.LITERAL and inner.name == outer.name
