"""The stored form of access control lists: one JSON document.

{"version": 1, "acls": [{"resourceType": "TOPIC", "name": "clicks", "patternType": "LITERAL",
 "principal": "User:alice", "host": "*", "operation": "READ", "permission": "ALLOW"}]}
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from logbroker.errors import InvalidRequest
from logbroker.security.acl import (
    ANY,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    check_acl,
    sort_acls,
)
from logbroker.security.authorizer import AclIndex

VERSION: Final = 1

ACLS_MAX: Final = 10_000
"""The number of ACLs of a cluster; each change writes all of them."""

DENY_ALL: Final = AclIndex(
    Acl(each, ANY, PatternType.LITERAL, f"User:{ANY}", ANY, AclOperation.ALL, Permission.DENY)
    for each in AclResourceType
    if each > AclResourceType.ANY
)
"""Used where the stored ACLs cannot be read: only super users may do anything."""


def format_acls(acls: Iterable[Acl]) -> bytes:
    """Encode the document with one line per ACL, so that people can read and compare it."""
    lines = [json.dumps(_fields(acl)) for acl in sort_acls(acls)]
    return (f'{{"version": {VERSION}, "acls": [\n' + ",\n".join(lines) + "\n]}\n").encode()


def parse_acls(content: bytes) -> AclIndex:
    """Decode a document; an empty one has no ACLs.

    Raises:
        ValueError: the content is not such a document, or has another version.
    """
    if not content:
        return AclIndex()
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise ValueError(f"unsupported version {document['version']!r}; allowed: {VERSION}")
        return AclIndex(_acl(fields) for fields in document["acls"])
    except (KeyError, TypeError, AttributeError, InvalidRequest) as error:
        raise ValueError(f"a field is missing or invalid: {error}") from None


def check_acl_count(count: int) -> None:
    """Reject more than `ACLS_MAX` ACLs.

    Raises:
        InvalidRequest: there would be more.
    """
    if count > ACLS_MAX:
        raise InvalidRequest(f"the cluster would have {count} ACLs; allowed: {ACLS_MAX}")


def _fields(acl: Acl) -> dict[str, str]:
    return {
        "resourceType": acl.resource_type.name,
        "name": acl.name,
        "patternType": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _acl(fields: dict[str, Any]) -> Acl:
    acl = Acl(
        AclResourceType[fields["resourceType"]],
        str(fields["name"]),
        PatternType[fields["patternType"]],
        str(fields["principal"]),
        str(fields["host"]),
        AclOperation[fields["operation"]],
        Permission[fields["permission"]],
    )
    check_acl(acl)
    return acl
