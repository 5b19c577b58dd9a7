"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: what members of a consumer group ask."""

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
from logbroker.groups.exchanges import (
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
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.server.groups.question import Question
from logbroker.wire.error_codes import code_of

FIRST_JOIN_WITH_ID_FIRST: Final = 4
FIRST_JOIN_WITHOUT_PROTOCOL: Final = 7
"""From then on an answer without a protocol says null."""
FIRST_JOIN_WITH_SKIPPING: Final = 9
FIRST_LEAVE_OF_MANY: Final = 3

INSTANCE_ID_CHARS_MAX: Final = 249
"""Kafka's: instance ids follow the rule for topics' names."""

_NO_REFUSAL: Final = 0


class GroupHandlers:
    """Hands each request to its group; the answer comes when the group has it."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def join_group(
        self,
        request: JoinGroupRequest,
        connection: Connection,
        answer: Callable[[JoinGroupResponse], None],
    ) -> None:
        """Become a member of the next generation; answered once it is formed."""
        version = request.version or 0
        question = Question(connection, lambda result: answer(_join_response(version, result)))
        instance_id = request.group_instance_id
        refusal = _instance_id_refusal(instance_id)
        if refusal is not None:
            question.fill(ErrorResponse(refusal, request.member_id))
            return
        client_id = connection.client_id or ""
        prefix = (instance_id or client_id)[:INSTANCE_ID_CHARS_MAX]
        join = Join(
            token=question,
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
            takes_id_first=version >= FIRST_JOIN_WITH_ID_FIRST,
            may_skip_assignment=version >= FIRST_JOIN_WITH_SKIPPING,
        )
        self._coordinator.ask(request.group_id, join, question)

    def sync_group(
        self,
        request: SyncGroupRequest,
        connection: Connection,
        answer: Callable[[SyncGroupResponse], None],
    ) -> None:
        """Get one's assignment; answered once the leader's is stored."""
        question = Question(connection, lambda result: answer(_sync_response(result)))
        sync = Sync(
            token=question,
            identity=MemberIdentity(request.member_id, request.group_instance_id),
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={
                each.member_id: cast("bytes", each.assignment) for each in request.assignments
            },
        )
        self._coordinator.ask(request.group_id, sync, question)

    def heartbeat(
        self,
        request: HeartbeatRequest,
        connection: Connection,
        answer: Callable[[HeartbeatResponse], None],
    ) -> None:
        """Show that a member is alive, and hear whether it has to join again."""

        def answered(result: Answer) -> None:
            assert isinstance(result, Alive | ErrorResponse)
            answer(HeartbeatResponse(throttle_time_ms=0, error_code=_code(result)))

        question = Question(connection, answered)
        identity = MemberIdentity(request.member_id, request.group_instance_id)
        heartbeat = Heartbeat(question, identity, request.generation_id)
        self._coordinator.ask(request.group_id, heartbeat, question)

    def leave_group(
        self,
        request: LeaveGroupRequest,
        connection: Connection,
        answer: Callable[[LeaveGroupResponse], None],
    ) -> None:
        """Let go of one member, or (from v3) of many."""
        is_many = (request.version or 0) >= FIRST_LEAVE_OF_MANY
        identities = (
            tuple(
                MemberIdentity(each.member_id, each.group_instance_id) for each in request.members
            )
            if is_many
            else (MemberIdentity(request.member_id),)
        )
        question = Question(
            connection,
            lambda result: answer(_leave_response(result, identities, is_many=is_many)),
        )
        self._coordinator.ask(request.group_id, Leave(question, identities), question)


def _instance_id_refusal(instance_id: str | None) -> RequestRefused | None:
    if instance_id is None or 1 <= len(instance_id) <= INSTANCE_ID_CHARS_MAX:
        return None
    return InvalidRequest(
        f"instance id of {len(instance_id)} characters; allowed is 1 to {INSTANCE_ID_CHARS_MAX}"
    )


def _join_response(version: int, result: Answer) -> JoinGroupResponse:
    if isinstance(result, Joined):
        return JoinGroupResponse(
            throttle_time_ms=0,
            error_code=_NO_REFUSAL,
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


def _sync_response(result: Answer) -> SyncGroupResponse:
    if isinstance(result, Synced):
        return SyncGroupResponse(
            throttle_time_ms=0,
            error_code=_NO_REFUSAL,
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
        error_code=_NO_REFUSAL if is_many else codes[0],
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
    return code_of(result.error) if isinstance(result, ErrorResponse) else _NO_REFUSAL
