"""Guards of the requests about consumer groups, their offsets and producer ids."""

from collections.abc import Callable
from typing import Any, Final

from kafka.protocol.admin.groups import DeleteGroupsResponse
from kafka.protocol.consumer.group import (
    HeartbeatResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import FindCoordinatorResponse
from kafka.protocol.producer.transaction import InitProducerIdResponse

from logbroker.errors import RequestRefused
from logbroker.groups.messages import ErrorResponse
from logbroker.security.acl import AclOperation, AclResourceType
from logbroker.server.authorization.access import Access, Client, refusal_of
from logbroker.server.authorization.guards import (
    CLUSTER_CODE,
    GROUP_CODE,
    TOPIC_CODE,
    TRANSACTIONAL_ID_CODE,
    Forbidden,
    RequestGuard,
    Verdict,
    add_results,
    remove_forbidden_topics,
    split,
)
from logbroker.server.handlers.committed_offsets import (
    FIRST_FETCH_OF_MANY_GROUPS,
    FIRST_FETCH_WITH_GROUP_ERROR,
    commit_results,
    deletion_results,
    refused_fetch_results,
)
from logbroker.server.handlers.group_admin import describe_group
from logbroker.server.handlers.groups import join_response, sync_response
from logbroker.wire.error_codes import code_and_message

FIRST_WITH_MANY_KEYS: Final = 4
TRANSACTION: Final = 1

_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup


def _require_read(respond: Callable[[Any, RequestRefused], Any]) -> RequestGuard:
    """Return a guard that requires Read on the group; `respond` makes the refusal."""

    def guard(access: Access, client: Client, request: Any) -> Verdict:
        if access.allows_group(client, AclOperation.READ, request.group_id):
            return None
        group = AclResourceType.GROUP, request.group_id
        return Forbidden(respond(request, refusal_of(client, AclOperation.READ, *group)))

    return guard


guard_join_group: Final = _require_read(
    lambda request, refusal: join_response(
        request.version or 0, ErrorResponse(refusal, request.member_id)
    )
)

guard_sync_group: Final = _require_read(
    lambda _request, refusal: sync_response(ErrorResponse(refusal))
)

guard_heartbeat: Final = _require_read(
    lambda _request, _refusal: HeartbeatResponse(throttle_time_ms=0, error_code=GROUP_CODE)
)

guard_leave_group: Final = _require_read(
    lambda _request, _refusal: LeaveGroupResponse(
        throttle_time_ms=0, error_code=GROUP_CODE, members=[]
    )
)


def guard_offset_commit(access: Access, client: Client, request: Any) -> Verdict:
    """Require Read on the group and on each topic."""
    if not access.allows_group(client, AclOperation.READ, request.group_id):
        refused = commit_results(request.topics, {}, GROUP_CODE)
        return Forbidden(OffsetCommitResponse(throttle_time_ms=0, topics=refused))
    forbidden = remove_forbidden_topics(access, client, AclOperation.READ, request)
    return add_results("topics", commit_results(forbidden, {}, TOPIC_CODE))


def guard_offset_fetch(access: Access, client: Client, request: Any) -> Verdict:
    """Require Describe on each group and on each topic."""
    if (request.version or 0) >= FIRST_FETCH_OF_MANY_GROUPS:
        return _guard_offset_fetch_of_many(access, client, request)
    if not access.allows_group(client, AclOperation.DESCRIBE, request.group_id):
        each_code = GROUP_CODE if request.version < FIRST_FETCH_WITH_GROUP_ERROR else 0
        topics = (
            refused_fetch_results(request.topics or [], each_code, of_many=False)
            if each_code
            else []
        )
        return Forbidden(
            OffsetFetchResponse(throttle_time_ms=0, error_code=GROUP_CODE, topics=topics, groups=[])
        )
    if request.topics is None:
        return lambda message: _hide_topics(access, client, message, message)
    forbidden = remove_forbidden_topics(access, client, AclOperation.DESCRIBE, request)
    return add_results("topics", refused_fetch_results(forbidden, TOPIC_CODE, of_many=False))


def _guard_offset_fetch_of_many(access: Access, client: Client, request: Any) -> Verdict:
    request.groups, forbidden_groups = split(
        request.groups,
        lambda each: access.allows_group(client, AclOperation.DESCRIBE, each.group_id),
    )
    forbidden: dict[str, list[Any]] = {}
    for group in request.groups:
        if group.topics is not None:
            forbidden[group.group_id] = remove_forbidden_topics(
                access, client, AclOperation.DESCRIBE, group
            )

    def finish(message: Any) -> Any:
        for group in message.groups:
            if group.group_id in forbidden:
                topics = forbidden[group.group_id]
                if not group.error_code:
                    group.topics += refused_fetch_results(topics, TOPIC_CODE, of_many=True)
            else:
                _hide_topics(access, client, group, message)
        message.groups += [
            _FetchedGroup(group_id=each.group_id, topics=[], error_code=GROUP_CODE)
            for each in forbidden_groups
        ]
        return message

    return finish


def _hide_topics(access: Access, client: Client, holder: Any, message: Any) -> Any:
    """Remove what `client` may not describe from all offsets of a group; returns `message`."""
    holder.topics = [
        each
        for each in holder.topics
        if access.allows_topic(client, AclOperation.DESCRIBE, each.name)
    ]
    return message


def guard_offset_delete(access: Access, client: Client, request: Any) -> Verdict:
    """Require Delete on the group and Read on each topic."""
    if not access.allows_group(client, AclOperation.DELETE, request.group_id):
        return Forbidden(OffsetDeleteResponse(error_code=GROUP_CODE, throttle_time_ms=0, topics=[]))
    forbidden = remove_forbidden_topics(access, client, AclOperation.READ, request)

    def finish(message: Any) -> Any:
        if not message.error_code:
            message.topics += deletion_results(forbidden, {}, TOPIC_CODE)
        return message

    return finish if forbidden else None


def guard_find_coordinator(access: Access, client: Client, request: Any) -> Verdict:
    """Require Describe on each group or transactional id."""
    is_transaction = request.key_type == TRANSACTION
    kind = AclResourceType.TRANSACTIONAL_ID if is_transaction else AclResourceType.GROUP

    def is_allowed(key: str) -> bool:
        return access.allows(client, AclOperation.DESCRIBE, kind, key)

    if (request.version or 0) < FIRST_WITH_MANY_KEYS:
        key = request.key or ""
        if is_allowed(key):
            return None
        code, reason = code_and_message(refusal_of(client, AclOperation.DESCRIBE, kind, key))
        return Forbidden(
            FindCoordinatorResponse(
                throttle_time_ms=0,
                error_code=code,
                error_message=reason,
                node_id=-1,
                host="",
                port=-1,
                coordinators=[],
            )
        )
    request.coordinator_keys, forbidden = split(request.coordinator_keys, is_allowed)
    refused = []
    for key in forbidden:
        code, reason = code_and_message(refusal_of(client, AclOperation.DESCRIBE, kind, key))
        refused.append(
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason
            )
        )
    return add_results("coordinators", refused)


def guard_describe_groups(access: Access, client: Client, request: Any) -> Verdict:
    """Require Describe on each group."""
    request.groups, forbidden = split(
        request.groups, lambda each: access.allows_group(client, AclOperation.DESCRIBE, each)
    )

    def finish(message: Any) -> Any:
        if request.include_authorized_operations:
            for group in message.groups:
                if not group.error_code:
                    group.authorized_operations = access.operations(
                        client, AclResourceType.GROUP, group.group_id
                    )
        for group_id in dict.fromkeys(forbidden):
            group = AclResourceType.GROUP, group_id
            refusal = refusal_of(client, AclOperation.DESCRIBE, *group)
            message.groups.append(describe_group(group_id, refusal))
        return message

    return finish if forbidden or request.include_authorized_operations else None


def guard_list_groups(access: Access, client: Client, _request: Any) -> Verdict:
    """Show all groups with Describe on the cluster, otherwise those with Describe on the group."""
    if access.allows_cluster(client, AclOperation.DESCRIBE):
        return None

    def finish(message: Any) -> Any:
        message.groups = [
            each
            for each in message.groups
            if access.allows_group(client, AclOperation.DESCRIBE, each.group_id)
        ]
        return message

    return finish


def guard_delete_groups(access: Access, client: Client, request: Any) -> Verdict:
    """Require Delete on each group."""
    result = DeleteGroupsResponse.DeletableGroupResult
    request.groups_names, forbidden = split(
        request.groups_names, lambda each: access.allows_group(client, AclOperation.DELETE, each)
    )
    return add_results(
        "results", [result(group_id=each, error_code=GROUP_CODE) for each in forbidden]
    )


def guard_init_producer_id(access: Access, client: Client, request: Any) -> Verdict:
    """Require Write on the transactional id; without one, on some topic, or IdempotentWrite."""
    if request.transactional_id is not None:
        kind = AclResourceType.TRANSACTIONAL_ID
        is_allowed = access.allows(client, AclOperation.WRITE, kind, request.transactional_id)
        code = TRANSACTIONAL_ID_CODE
    else:
        is_allowed = access.allows_cluster(
            client, AclOperation.IDEMPOTENT_WRITE
        ) or access.allows_any_topic(client, AclOperation.WRITE)
        code = CLUSTER_CODE
    if is_allowed:
        return None
    return Forbidden(
        InitProducerIdResponse(
            throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1
        )
    )
