"""ACLs are validated and selected as in Kafka, and stored as one document."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import InvalidRequest
from logbroker.registry.acl_payloads import (
    ACLS_MAX,
    DENY_ALL,
    check_acl_count,
    format_acls,
    parse_acls,
)
from logbroker.security.acl import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    check_acl,
)

READ_CLICKS = Acl(
    AclResourceType.TOPIC,
    "clicks",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    Permission.ALLOW,
)
EVERY_TOPIC = READ_CLICKS._replace(name="*")
BY_PREFIX = READ_CLICKS._replace(name="cl", pattern_type=PatternType.PREFIXED)
STORED = (READ_CLICKS, EVERY_TOPIC, BY_PREFIX)

texts = st.text(min_size=1, max_size=20)
acls = st.builds(
    Acl,
    st.sampled_from([each for each in AclResourceType if each > 1 and each.name != "CLUSTER"]),
    texts,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    texts.map(lambda name: f"User:{name}"),
    texts,
    st.sampled_from([each for each in AclOperation if each > 1]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), STORED),
        (AclFilter(name="clicks"), (READ_CLICKS,)),
        (AclFilter(name="clicks", pattern_type=PatternType.MATCH), STORED),
        (AclFilter(name="views", pattern_type=PatternType.MATCH), (EVERY_TOPIC,)),
        (AclFilter(name="club", pattern_type=PatternType.MATCH), (EVERY_TOPIC, BY_PREFIX)),
        (AclFilter(name="cl", pattern_type=PatternType.LITERAL), ()),
        (AclFilter(pattern_type=PatternType.PREFIXED), (BY_PREFIX,)),
        (AclFilter(resource_type=AclResourceType.GROUP), ()),
        (AclFilter(principal="User:bob"), ()),
        (AclFilter(operation=AclOperation.WRITE), ()),
        (AclFilter(permission=Permission.ALLOW, host="*"), STORED),
    ],
)
def test_a_filter_selects(wanted: AclFilter, found: tuple[Acl, ...]) -> None:
    assert tuple(filter(wanted.matches, STORED)) == found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource_type": AclResourceType.ANY}, "resource type"),
        ({"resource_type": AclResourceType.CLUSTER}, "kafka-cluster"),
        ({"pattern_type": PatternType.MATCH}, "pattern type"),
        ({"operation": AclOperation.ANY}, "operation"),
        ({"permission": Permission.UNKNOWN}, "permission"),
        ({"name": ""}, "resource name"),
        ({"host": "h" * 1025}, "host"),
        ({"principal": "alice"}, "KIND:NAME"),
    ],
)
def test_an_acl_that_matches_nothing_is_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_acl(READ_CLICKS._replace(**changed))


@given(st.frozensets(acls, max_size=8))
def test_stored_acls_are_read_back(entries: frozenset[Acl]) -> None:
    assert parse_acls(format_acls(entries)).acls == entries


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"version": 2, "acls": []}',
        b'{"version": 1}',
        b'{"version": 1, "acls": [{"name": "clicks"}]}',
        format_acls([READ_CLICKS]).replace(b"READ", b"READS"),
        format_acls([READ_CLICKS]).replace(b"User:alice", b"alice"),
    ],
)
def test_a_malformed_document_is_rejected(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|version|Expecting"):
        parse_acls(content)


def test_no_content_means_no_acls() -> None:
    assert len(parse_acls(b"")) == 0


def test_the_number_of_acls_is_limited() -> None:
    check_acl_count(ACLS_MAX)
    with pytest.raises(InvalidRequest, match=f"allowed: {ACLS_MAX}"):
        check_acl_count(ACLS_MAX + 1)


def test_unreadable_acls_deny_every_type_of_resource() -> None:
    denied = {(acl.resource_type, acl.permission) for acl in DENY_ALL.acls}
    assert denied == {(each, Permission.DENY) for each in AclResourceType if each > 1}
