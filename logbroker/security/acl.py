"""Access control lists: what a principal may or may not do with resources, as in Kafka.

Source: Apache Kafka, `org.apache.kafka.common.acl` and `org.apache.kafka.common.resource`; KIP-11,
KIP-290 (prefixed patterns).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from logbroker.errors import InvalidRequest
from logbroker.security.principal import Principal

ANY: Final = "*"
"""Every principal of a kind, every host, or every resource of a type."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type Cluster."""

TEXT_CHARS_MAX: Final = 1_024
"""The maximum length of a principal, a host or a resource name."""


class AclResourceType(IntEnum):
    """What an ACL protects; the values are those of the protocol."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names resources; MATCH is used in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What can be done with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: Final = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that a type of resource has, apart from ALL."""

GRANTED_BY: Final = {
    AclOperation.DESCRIBE: (
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}
"""The operations whose permission includes another one; a denial includes no other."""


class Acl(NamedTuple):
    """One entry: `permission` for `principal` from `host` to do `operation` with resources.

    `name` is a resource name, `*` for all of the type, or a prefix if `pattern_type` is PREFIXED.
    `principal` is `KIND:NAME`; `User:*` is every user.
    """

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Return whether the pattern includes the resource `name`."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY)


class AclFilter(NamedTuple):
    """Selects ACLs; None and ANY match every value.

    The pattern type MATCH selects every ACL that covers the resource `name`.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether `acl` is selected."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type == PatternType.MATCH:
            return self.name is None or acl.covers(self.name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (
            None,
            acl.name,
        )


def check_acl(acl: Acl) -> None:
    """Reject an ACL that is incomplete or that no request can match.

    Raises:
        InvalidRequest: the message names the field.
    """
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise InvalidRequest(f"resource type is {acl.resource_type.name}; it must be a single type")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(
            f"pattern type is {acl.pattern_type.name}; allowed: LITERAL or PREFIXED"
        )
    if acl.resource_type == AclResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequest(f"cluster name is {acl.name!r}; allowed: {CLUSTER_NAME}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise InvalidRequest(f"operation is {acl.operation.name}; it must be a single one or ALL")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise InvalidRequest(f"permission is {acl.permission.name}; allowed: ALLOW or DENY")
    _check_text("resource name", acl.name)
    _check_text("host", acl.host)
    _check_text("principal", acl.principal)
    try:
        Principal.parse(acl.principal)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def sort_acls(acls: Iterable[Acl]) -> list[Acl]:
    """Return `acls` in one order, grouped by resource pattern."""
    return sorted(acls)


def _check_text(field: str, value: str) -> None:
    if not 1 <= len(value) <= TEXT_CHARS_MAX:
        raise InvalidRequest(
            f"{field} of {len(value)} characters; allowed is 1 to {TEXT_CHARS_MAX}"
        )
