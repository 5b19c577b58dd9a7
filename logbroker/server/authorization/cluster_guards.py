"""Guards of the requests about the cluster, and the table of all guards."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.protocol.admin.acl import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from kafka.protocol.admin.cluster import DescribeLogDirsResponse
from kafka.protocol.admin.users import DescribeUserScramCredentialsResponse

from logbroker.errors import RequestRefused
from logbroker.security.acl import CLUSTER_NAME, AclOperation, AclResourceType
from logbroker.server.authorization.access import Access, Client, refusal_of
from logbroker.server.authorization.group_guards import (
    guard_delete_groups,
    guard_describe_groups,
    guard_find_coordinator,
    guard_heartbeat,
    guard_init_producer_id,
    guard_join_group,
    guard_leave_group,
    guard_list_groups,
    guard_offset_commit,
    guard_offset_delete,
    guard_offset_fetch,
    guard_sync_group,
)
from logbroker.server.authorization.guards import CLUSTER_CODE, Forbidden, RequestGuard, Verdict
from logbroker.server.authorization.topic_guards import (
    guard_alter_configs,
    guard_create_partitions,
    guard_create_topics,
    guard_delete_records,
    guard_describe_configs,
    guard_incremental_alter_configs,
    guard_list_offsets,
    guard_offset_for_leader_epoch,
)
from logbroker.server.authorization.view_guards import ViewGuards
from logbroker.server.handlers import quotas
from logbroker.server.handlers.users import refuse_alter
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import code_and_message

SHOW_OPERATIONS: Final = frozenset(
    {ApiKey.METADATA, ApiKey.DESCRIBE_GROUPS, ApiKey.DESCRIBE_CLUSTER}
)
"""APIs that report what the client may do; their guards run without an authorizer too."""


UNGUARDED: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.PRODUCE,
        ApiKey.FETCH,
    }
)
"""APIs that everyone may call, or whose handlers check each topic themselves."""


class Guards:
    """The guards of all APIs that are not in `UNGUARDED`."""

    def __init__(self, access: Access, by_view: ViewGuards) -> None:
        self._access = access
        self._guards: Mapping[ApiKey, RequestGuard] = {
            **_GUARDS,
            ApiKey.METADATA: by_view.guard_metadata,
            ApiKey.DELETE_TOPICS: by_view.guard_delete_topics,
        }

    def covers(self, api_key: ApiKey) -> bool:
        """Return whether an API has a guard."""
        return api_key in self._guards

    def is_expensive(self, api_key: ApiKey, request: Any) -> bool:
        """Return whether `check` looks at every topic, which takes milliseconds; any thread may."""
        if api_key is not ApiKey.METADATA or not self._access.is_restricted:
            return False
        return request.topics is None or not (request.topics or request.version)

    def check(self, api_key: ApiKey, client: Client, request: Any) -> Verdict:
        """Remove what `client` may not do from `request`; returns the verdict."""
        if not self._access.is_restricted and api_key not in SHOW_OPERATIONS:
            return None
        if api_key in UNGUARDED:
            return None
        return self._guards[api_key](self._access, client, request)


def guard_describe_cluster(access: Access, client: Client, request: Any) -> Verdict:
    """Require Describe on the cluster for the operations of the client only."""
    if not request.include_cluster_authorized_operations:
        return None

    def finish(message: Any) -> Any:
        message.authorized_operations = access.cluster_operations(client)
        return message

    return finish


def _require(
    operation: AclOperation, respond: Callable[[Any, RequestRefused], Any]
) -> RequestGuard:
    """Return a guard that requires an operation on the cluster; `respond` makes the refusal."""

    def guard(access: Access, client: Client, request: Any) -> Verdict:
        if access.allows_cluster(client, operation):
            return None
        refusal = refusal_of(client, operation, AclResourceType.CLUSTER, CLUSTER_NAME)
        return Forbidden(respond(request, refusal))

    return guard


def _refuse_describe_log_dirs(_request: Any, _refusal: RequestRefused) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=CLUSTER_CODE, results=[])


def _refuse_describe_acls(_request: Any, refusal: RequestRefused) -> DescribeAclsResponse:
    code, reason = code_and_message(refusal)
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=code, error_message=reason, resources=[]
    )


def _refuse_create_acls(request: Any, refusal: RequestRefused) -> CreateAclsResponse:
    code, reason = code_and_message(refusal)
    result = CreateAclsResponse.AclCreationResult(error_code=code, error_message=reason)
    return CreateAclsResponse(throttle_time_ms=0, results=[result for _ in request.creations])


def _refuse_delete_acls(request: Any, refusal: RequestRefused) -> DeleteAclsResponse:
    code, reason = code_and_message(refusal)
    result = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=code, error_message=reason, matching_acls=[]
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[result for _ in request.filters])


def _refuse_describe_users(
    _request: Any, refusal: RequestRefused
) -> DescribeUserScramCredentialsResponse:
    code, reason = code_and_message(refusal)
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=code, error_message=reason, results=[]
    )


_GUARDS: Final[Mapping[ApiKey, RequestGuard]] = {
    ApiKey.LIST_OFFSETS: guard_list_offsets,
    ApiKey.OFFSET_COMMIT: guard_offset_commit,
    ApiKey.OFFSET_FETCH: guard_offset_fetch,
    ApiKey.FIND_COORDINATOR: guard_find_coordinator,
    ApiKey.JOIN_GROUP: guard_join_group,
    ApiKey.HEARTBEAT: guard_heartbeat,
    ApiKey.LEAVE_GROUP: guard_leave_group,
    ApiKey.SYNC_GROUP: guard_sync_group,
    ApiKey.DESCRIBE_GROUPS: guard_describe_groups,
    ApiKey.LIST_GROUPS: guard_list_groups,
    ApiKey.CREATE_TOPICS: guard_create_topics,
    ApiKey.DELETE_RECORDS: guard_delete_records,
    ApiKey.INIT_PRODUCER_ID: guard_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: guard_offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: _require(AclOperation.DESCRIBE, _refuse_describe_acls),
    ApiKey.CREATE_ACLS: _require(AclOperation.ALTER, _refuse_create_acls),
    ApiKey.DELETE_ACLS: _require(AclOperation.ALTER, _refuse_delete_acls),
    ApiKey.DESCRIBE_CONFIGS: guard_describe_configs,
    ApiKey.ALTER_CONFIGS: guard_alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: _require(AclOperation.DESCRIBE, _refuse_describe_log_dirs),
    ApiKey.CREATE_PARTITIONS: guard_create_partitions,
    ApiKey.DELETE_GROUPS: guard_delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: guard_incremental_alter_configs,
    ApiKey.OFFSET_DELETE: guard_offset_delete,
    ApiKey.DESCRIBE_CLUSTER: guard_describe_cluster,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _require(AclOperation.DESCRIBE_CONFIGS, quotas.refuse_describe),
    ApiKey.ALTER_CLIENT_QUOTAS: _require(AclOperation.ALTER_CONFIGS, quotas.refuse_alter),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _require(AclOperation.DESCRIBE, _refuse_describe_users),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _require(AclOperation.ALTER, refuse_alter),
}
