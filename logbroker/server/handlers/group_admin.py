"""ListGroups, DescribeGroups and DeleteGroups."""

from collections.abc import Callable
from functools import partial
from typing import Final

from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

from logbroker.errors import RequestRefused, UnknownGroup
from logbroker.groups.messages import DescribedGroup
from logbroker.groups.states import GroupState
from logbroker.server.connection import Connection
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.server.handlers.lazy_response import LazyResponse, lazy_if_large
from logbroker.wire.error_codes import code_of

CLASSIC: Final = "classic"
"""The type of every group; the other type of the protocol is `consumer` (KIP-848)."""

_Described = DescribeGroupsResponse.DescribedGroup
_DEAD_GROUP: Final = DescribedGroup(GroupState.DEAD, "", "", ())


class GroupAdminHandlers:
    """Handles admin requests for the groups of this coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse | LazyResponse:
        """Return the groups of this broker, filtered by state (v4) and type (v5)."""
        groups, refusal = self._coordinator.list_all()
        states = {state.lower() for state in request.states_filter or ()}
        types = {kind.lower() for kind in request.types_filter or ()}
        return lazy_if_large(
            len(groups),
            lambda: ListGroupsResponse(
                throttle_time_ms=0,
                error_code=0 if refusal is None else code_of(refusal),
                groups=[
                    ListGroupsResponse.ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=group.state,
                        group_type=CLASSIC,
                    )
                    for group in groups
                    if (not states or group.state.lower() in states)
                    and (not types or CLASSIC in types)
                ],
            ),
        )

    def describe_groups(self, request: DescribeGroupsRequest) -> LazyResponse:
        """Return members and assignments of each group, without duplicates.

        An unknown group has the state Dead.
        """
        found = {group_id: self._find(group_id) for group_id in request.groups}
        return LazyResponse(
            lambda: DescribeGroupsResponse(
                throttle_time_ms=0, groups=[describe_group(*each) for each in found.items()]
            )
        )

    def delete_groups(
        self,
        request: DeleteGroupsRequest,
        _connection: Connection,
        respond: Callable[[DeleteGroupsResponse], None],
    ) -> None:
        """Delete groups without members; the response waits until the deletions are durable."""
        names = list(request.groups_names)
        codes: dict[str, int] = {}

        def deleted(group_id: str, refusal: RequestRefused | None) -> None:
            codes[group_id] = 0 if refusal is None else code_of(refusal)
            if len(codes) == len(wanted):
                respond(_delete_response(names, codes))

        wanted = dict.fromkeys(names)
        if not wanted:
            respond(_delete_response(names, codes))
        for group_id in wanted:
            self._coordinator.delete(group_id, partial(deleted, group_id))

    def _find(self, group_id: str) -> DescribedGroup | RequestRefused:
        try:
            return self._coordinator.get(group_id).describe()
        except UnknownGroup:
            return _DEAD_GROUP
        except RequestRefused as refusal:
            return refusal


def describe_group(group_id: str, found: DescribedGroup | RequestRefused) -> _Described:
    """Return the result for a group."""
    group, code = (_DEAD_GROUP, code_of(found)) if isinstance(found, RequestRefused) else (found, 0)
    return _Described(
        error_code=code,
        group_id=group_id,
        group_state="" if code else group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            _Described.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def _delete_response(names: list[str], codes: dict[str, int]) -> DeleteGroupsResponse:
    result = DeleteGroupsResponse.DeletableGroupResult
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[result(group_id=name, error_code=codes[name]) for name in names],
    )
