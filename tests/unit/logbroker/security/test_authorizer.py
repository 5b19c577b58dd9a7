"""Decisions follow Kafka's rules: compared with a direct statement of them, and by examples."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from logbroker.security.authorizer import CACHED_NAME_MAX, AclIndex, Authorizer
from logbroker.security.principal import ANONYMOUS, Principal

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALICE, BOB, ADMIN = (Principal("User", name) for name in ("alice", "bob", "admin"))
HOST = "192.0.2.1"

IMPLIES_DESCRIBE = {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}

NAMES = ("a", "ab", "abc", "b", "*")
OPERATIONS = (
    AclOperation.ALL,
    READ,
    WRITE,
    AclOperation.ALTER,
    DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*", "Group:*"]),
    st.sampled_from(["*", HOST, "192.0.2.2"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, DENY]),
)


def allow(
    operation: AclOperation = READ,
    name: str = "clicks",
    principal: str = "User:alice",
    *,
    kind: AclResourceType = TOPIC,
    pattern: PatternType = LITERAL,
    host: str = "*",
    permission: Permission = ALLOW,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer_of(*acls: Acl, allow_if_no_acl: bool = False) -> Authorizer:
    authorizer = Authorizer([ADMIN], allow_if_no_acl=allow_if_no_acl)
    authorizer.use(AclIndex(acls))
    return authorizer


def expected(
    acls: list[Acl], principal: Principal, operation: AclOperation, name: str, default: bool
) -> bool:
    """State the rules directly: every ACL is examined for every question."""
    covering = [
        acl
        for acl in acls
        if acl.resource_type == TOPIC
        and (name.startswith(acl.name) if acl.pattern_type == PREFIXED else acl.name in (name, "*"))
    ]
    if not covering:
        return default
    mine = [
        acl
        for acl in covering
        if acl.principal in (f"User:{principal.name}", "User:*") and acl.host in (HOST, "*")
    ]
    granting = {operation, AclOperation.ALL}
    if operation == DESCRIBE:
        granting |= IMPLIES_DESCRIBE
    if operation == AclOperation.DESCRIBE_CONFIGS:
        granting.add(AclOperation.ALTER_CONFIGS)
    denied = any(a.permission == DENY and a.operation in (operation, 2) for a in mine)
    return not denied and any(a.permission == ALLOW and a.operation in granting for a in mine)


@given(st.lists(acls, max_size=12), st.booleans())
def test_decisions_equal_a_direct_statement_of_the_rules(entries: list[Acl], default: bool) -> None:
    authorizer = authorizer_of(*entries, allow_if_no_acl=default)
    for principal, operation, name in product(
        (ALICE, BOB, ANONYMOUS), OPERATIONS[1:], ("a", "ab", "abcd", "b", "c")
    ):
        found = authorizer.is_allowed(principal, HOST, operation, TOPIC, name)
        assert found == expected(entries, principal, operation, name, default)
        assert authorizer.is_allowed(principal, HOST, operation, TOPIC, name) == found, "cached"


@given(st.lists(acls, max_size=8))
def test_a_permission_for_any_topic_is_one_for_some_name(entries: list[Acl]) -> None:
    authorizer = authorizer_of(*entries)
    names = [
        *(f"{acl.name}{end}" for acl in entries for end in ("", "#") if acl.name != "*"),
        "other",
        "*",
    ]
    for principal, operation in product((ALICE, BOB), (READ, WRITE)):
        some = any(authorizer.is_allowed(principal, HOST, operation, TOPIC, name) for name in names)
        # As in Kafka, `*` itself is not a resource, so a question by name may find more.
        if authorizer.is_allowed_for_any(principal, HOST, operation, TOPIC):
            assert some


def test_without_acls_only_super_users_are_allowed() -> None:
    authorizer = authorizer_of()
    assert authorizer.is_allowed(ADMIN, HOST, READ, TOPIC, "clicks")
    assert authorizer.is_allowed_for_any(ADMIN, HOST, WRITE, TOPIC)
    assert not authorizer.is_allowed(ALICE, HOST, READ, TOPIC, "clicks")
    assert not authorizer.is_allowed_for_any(ALICE, HOST, WRITE, TOPIC)


def test_a_resource_without_acls_may_be_open_to_everyone() -> None:
    authorizer = authorizer_of(allow(), allow_if_no_acl=True)
    assert authorizer.is_allowed(BOB, HOST, READ, TOPIC, "views")
    assert not authorizer.is_allowed(BOB, HOST, READ, TOPIC, "clicks")


def test_deny_wins_even_over_an_exact_permission() -> None:
    authorizer = authorizer_of(
        allow(), allow(name="*", principal="User:*", permission=DENY, host=HOST)
    )
    assert not authorizer.is_allowed(ALICE, HOST, READ, TOPIC, "clicks")
    assert authorizer.is_allowed(ALICE, "192.0.2.9", READ, TOPIC, "clicks")


def test_a_denied_read_leaves_describe_allowed() -> None:
    authorizer = authorizer_of(allow(AclOperation.ALL), allow(READ, permission=DENY))
    assert not authorizer.is_allowed(ALICE, HOST, READ, TOPIC, "clicks")
    assert authorizer.is_allowed(ALICE, HOST, DESCRIBE, TOPIC, "clicks")


@pytest.mark.parametrize(
    ("denied", "remains"),
    [
        (allow(WRITE, "*", permission=DENY), False),
        (allow(WRITE, "clicks", permission=DENY), False),
        (allow(WRITE, "cl", pattern=PREFIXED, permission=DENY), False),
        (allow(WRITE, "clicks-eu", permission=DENY), True),
        (allow(WRITE, "clicks", "User:bob", permission=DENY), True),
    ],
)
def test_a_permission_counts_unless_it_is_denied_as_a_whole(denied: Acl, remains: bool) -> None:
    authorizer = authorizer_of(allow(WRITE), denied)
    assert authorizer.is_allowed_for_any(ALICE, HOST, WRITE, TOPIC) == remains


def test_new_acls_replace_cached_decisions() -> None:
    authorizer = authorizer_of(allow())
    assert authorizer.is_allowed(ALICE, HOST, READ, TOPIC, "clicks")
    authorizer.use(AclIndex([allow(principal="User:bob")]))
    assert not authorizer.is_allowed(ALICE, HOST, READ, TOPIC, "clicks")


def test_only_short_names_are_cached() -> None:
    authorizer = authorizer_of(allow())
    for length in (CACHED_NAME_MAX, CACHED_NAME_MAX + 1, 32_767):
        assert not authorizer.is_allowed(ALICE, HOST, READ, GROUP, "x" * length)
    assert len(authorizer._state[1]) == 1


def test_the_allowed_operations_are_those_of_the_resource_type() -> None:
    authorizer = authorizer_of(allow(AclOperation.ALL, "readers", kind=GROUP))
    assert authorizer.allowed_operations(ALICE, HOST, GROUP, "readers") == {
        READ,
        DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }
    cluster = AclResourceType.CLUSTER
    assert authorizer.allowed_operations(ALICE, HOST, cluster, CLUSTER_NAME) == set()
