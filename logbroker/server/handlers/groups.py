"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests of group members."""

from collections.abc import Callable
from typing import Final, cast
from uuid import uuid4

from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from logbroker.errors import InvalidRequest, RequestRefused
from logbroker.groups.messages import (
    NO_GENERATION,
    Alive,
    Answer,
    ErrorResponse,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    MemberIdentity,
    Sync,
    Synced,
)
from logbroker.server.connection import Connection
from logbroker.server.groups.coordinated_group import DelayedGroupRequest
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.wire.error_codes import code_of

FIRST_JOIN_WITH_MEMBER_ID_REQUIRED: Final = 4
FIRST_JOIN_WITHOUT_PROTOCOL: Final = 7
"""From this version on, a response without a protocol has null."""
FIRST_JOIN_WITH_SKIP_ASSIGNMENT: Final = 9
FIRST_LEAVE_WITH_MANY: Final = 3

INSTANCE_ID_CHARS_MAX: Final = 249
"""As in Kafka: instance ids follow the rule for topic names."""

_NO_ERROR: Final = 0


class GroupHandlers:
    """Passes each request to its group, which responds at once or later."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def join_group(
        self,
        request: JoinGroupRequest,
        connection: Connection,
        respond: Callable[[JoinGroupResponse], None],
    ) -> None:
        """Add a member to the next generation; the response waits for the rebalance."""
        version = request.version or 0
        delayed = DelayedGroupRequest(
            connection, lambda result: respond(join_response(version, result))
        )
        instance_id = request.group_instance_id
        refusal = _check_instance_id(instance_id)
        if refusal is not None:
            delayed.complete(ErrorResponse(refusal, request.member_id))
            return
        client_id = connection.client_id or ""
        prefix = (instance_id or client_id)[:INSTANCE_ID_CHARS_MAX]
        join = Join(
            token=delayed,
            identity=MemberIdentity(request.member_id, instance_id),
            fresh_id=f"{prefix}-{uuid4()}",
            client_id=client_id,
            client_host=f"/{connection.peer.rpartition(':')[0]}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(
                (each.name, cast("bytes", each.metadata)) for each in request.protocols
            ),
            takes_id_first=version >= FIRST_JOIN_WITH_MEMBER_ID_REQUIRED,
            may_skip_assignment=version >= FIRST_JOIN_WITH_SKIP_ASSIGNMENT,
        )
        self._coordinator.handle(request.group_id, join, delayed)

    def sync_group(
        self,
        request: SyncGroupRequest,
        connection: Connection,
        respond: Callable[[SyncGroupResponse], None],
    ) -> None:
        """Return a member's assignment; the response waits until the leader's is stored."""
        delayed = DelayedGroupRequest(connection, lambda result: respond(sync_response(result)))
        sync = Sync(
            token=delayed,
            identity=MemberIdentity(request.member_id, request.group_instance_id),
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={
                each.member_id: cast("bytes", each.assignment) for each in request.assignments
            },
        )
        self._coordinator.handle(request.group_id, sync, delayed)

    def heartbeat(
        self,
        request: HeartbeatRequest,
        connection: Connection,
        respond: Callable[[HeartbeatResponse], None],
    ) -> None:
        """Record a heartbeat; returns whether the member must rejoin."""

        def complete(result: Answer) -> None:
            assert isinstance(result, Alive | ErrorResponse)
            respond(HeartbeatResponse(throttle_time_ms=0, error_code=_code(result)))

        delayed = DelayedGroupRequest(connection, complete)
        identity = MemberIdentity(request.member_id, request.group_instance_id)
        heartbeat = Heartbeat(delayed, identity, request.generation_id)
        self._coordinator.handle(request.group_id, heartbeat, delayed)

    def leave_group(
        self,
        request: LeaveGroupRequest,
        connection: Connection,
        respond: Callable[[LeaveGroupResponse], None],
    ) -> None:
        """Remove one member, or (from v3) many."""
        is_many = (request.version or 0) >= FIRST_LEAVE_WITH_MANY
        identities = (
            tuple(
                MemberIdentity(each.member_id, each.group_instance_id) for each in request.members
            )
            if is_many
            else (MemberIdentity(request.member_id),)
        )
        delayed = DelayedGroupRequest(
            connection,
            lambda result: respond(_leave_response(result, identities, is_many=is_many)),
        )
        self._coordinator.handle(request.group_id, Leave(delayed, identities), delayed)


def _check_instance_id(instance_id: str | None) -> RequestRefused | None:
    if instance_id is None or 1 <= len(instance_id) <= INSTANCE_ID_CHARS_MAX:
        return None
    return InvalidRequest(
        f"instance id of {len(instance_id)} characters; allowed is 1 to {INSTANCE_ID_CHARS_MAX}"
    )


def join_response(version: int, result: Answer) -> JoinGroupResponse:
    """Return the response of a version."""
    if isinstance(result, Joined):
        return JoinGroupResponse(
            throttle_time_ms=0,
            error_code=_NO_ERROR,
            generation_id=result.generation,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            leader=result.leader,
            skip_assignment=result.skips_assignment,
            member_id=result.member_id,
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.subscription,
                )
                for each in result.members
            ],
        )
    assert isinstance(result, ErrorResponse)
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=_code(result),
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None if version >= FIRST_JOIN_WITHOUT_PROTOCOL else "",
        leader="",
        skip_assignment=False,
        member_id=result.member_id,
        members=[],
    )


def sync_response(result: Answer) -> SyncGroupResponse:
    """Return the response."""
    if isinstance(result, Synced):
        return SyncGroupResponse(
            throttle_time_ms=0,
            error_code=_NO_ERROR,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            assignment=result.assignment,
        )
    assert isinstance(result, ErrorResponse)
    return SyncGroupResponse(
        throttle_time_ms=0,
        error_code=_code(result),
        protocol_type=None,
        protocol_name=None,
        assignment=b"",
    )


def _leave_response(
    result: Answer, identities: tuple[MemberIdentity, ...], *, is_many: bool
) -> LeaveGroupResponse:
    if isinstance(result, ErrorResponse):
        return LeaveGroupResponse(throttle_time_ms=0, error_code=_code(result), members=[])
    assert isinstance(result, Left)
    codes = [0 if refusal is None else code_of(refusal) for refusal in result.refusals]
    return LeaveGroupResponse(
        throttle_time_ms=0,
        error_code=_NO_ERROR if is_many else codes[0],
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                error_code=code,
            )
            for identity, code in zip(identities, codes, strict=True)
        ],
    )


def _code(result: Alive | ErrorResponse) -> int:
    return code_of(result.error) if isinstance(result, ErrorResponse) else _NO_ERROR
