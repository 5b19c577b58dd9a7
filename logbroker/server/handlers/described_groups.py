"""ListGroups, DescribeGroups and DeleteGroups: consumer groups as an administrator sees them."""

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
from logbroker.groups.exchanges import DescribedGroup
from logbroker.groups.states import GroupState
from logbroker.server.connection import Connection
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.wire.error_codes import code_of

CLASSIC: Final = "classic"
"""The type of every group here, and the other word for it is `consumer` (KIP-848)."""

_Described = DescribeGroupsResponse.DescribedGroup
_NOBODY: Final = DescribedGroup(GroupState.DEAD, "", "", ())


class DescribedGroupHandlers:
    """Answers about the groups that this broker coordinates."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups of this broker, those of some states (v4) and types (v5) where asked."""
        groups, refusal = self._coordinator.describe_all()
        states = {state.lower() for state in request.states_filter or ()}
        types = {kind.lower() for kind in request.types_filter or ()}
        return ListGroupsResponse(
            throttle_time_ms=0,
            error_code=0 if refusal is None else code_of(refusal),
            groups=[
                ListGroupsResponse.ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=CLASSIC,
                )
                for group_id, group in groups.items()
                if (not states or group.state.lower() in states) and (not types or CLASSIC in types)
            ],
        )

    def describe_groups(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Members and assignments of each group, once however often it is named.

        One that is not there is told to be dead.
        """
        groups = [self._describe(group_id) for group_id in dict.fromkeys(request.groups)]
        return DescribeGroupsResponse(throttle_time_ms=0, groups=groups)

    def delete_groups(
        self,
        request: DeleteGroupsRequest,
        _connection: Connection,
        answer: Callable[[DeleteGroupsResponse], None],
    ) -> None:
        """Forget groups without members; answered once all is durable."""
        names = list(request.groups_names)
        codes: dict[str, int] = {}

        def deleted(group_id: str, refusal: RequestRefused | None) -> None:
            codes[group_id] = 0 if refusal is None else code_of(refusal)
            if len(codes) == len(wanted):
                answer(_delete_response(names, codes))

        wanted = dict.fromkeys(names)
        if not wanted:
            answer(_delete_response(names, codes))
        for group_id in wanted:
            self._coordinator.delete(group_id, partial(deleted, group_id))

    def _describe(self, group_id: str) -> _Described:
        group, code = _NOBODY, 0
        try:
            group = self._coordinator.get(group_id).describe()
        except UnknownGroup:
            pass
        except RequestRefused as refusal:
            code = code_of(refusal)
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
