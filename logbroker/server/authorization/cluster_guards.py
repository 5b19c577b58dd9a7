"""Guards of the requests about the cluster, and the table of all guards."""

from collections.abc import Mapping
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


def guard_describe_log_dirs(access: Access, client: Client, _request: Any) -> Verdict:
    """Require Describe on the cluster."""
    if access.allows_cluster(client, AclOperation.DESCRIBE):
        return None
    return Forbidden(
        DescribeLogDirsResponse(throttle_time_ms=0, error_code=CLUSTER_CODE, results=[])
    )


def guard_describe_acls(access: Access, client: Client, _request: Any) -> Verdict:
    """Require Describe on the cluster."""
    if access.allows_cluster(client, AclOperation.DESCRIBE):
        return None
    code, reason = _cluster_refusal(client, AclOperation.DESCRIBE)
    return Forbidden(
        DescribeAclsResponse(
            throttle_time_ms=0, error_code=code, error_message=reason, resources=[]
        )
    )


def guard_create_acls(access: Access, client: Client, request: Any) -> Verdict:
    """Require Alter on the cluster."""
    if access.allows_cluster(client, AclOperation.ALTER):
        return None
    code, reason = _cluster_refusal(client, AclOperation.ALTER)
    result = CreateAclsResponse.AclCreationResult(error_code=code, error_message=reason)
    return Forbidden(
        CreateAclsResponse(throttle_time_ms=0, results=[result for _ in request.creations])
    )


def guard_delete_acls(access: Access, client: Client, request: Any) -> Verdict:
    """Require Alter on the cluster."""
    if access.allows_cluster(client, AclOperation.ALTER):
        return None
    code, reason = _cluster_refusal(client, AclOperation.ALTER)
    result = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=code, error_message=reason, matching_acls=[]
    )
    return Forbidden(
        DeleteAclsResponse(throttle_time_ms=0, filter_results=[result for _ in request.filters])
    )


def guard_describe_users(access: Access, client: Client, _request: Any) -> Verdict:
    """Require Describe on the cluster."""
    if access.allows_cluster(client, AclOperation.DESCRIBE):
        return None
    code, reason = _cluster_refusal(client, AclOperation.DESCRIBE)
    return Forbidden(
        DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=code, error_message=reason, results=[]
        )
    )


def guard_alter_users(access: Access, client: Client, request: Any) -> Verdict:
    """Require Alter on the cluster."""
    if access.allows_cluster(client, AclOperation.ALTER):
        return None
    return Forbidden(refuse_alter(request, _refusal(client, AclOperation.ALTER)))


def guard_describe_quotas(access: Access, client: Client, _request: Any) -> Verdict:
    """Require DescribeConfigs on the cluster."""
    if access.allows_cluster(client, AclOperation.DESCRIBE_CONFIGS):
        return None
    return Forbidden(quotas.refuse_describe(_refusal(client, AclOperation.DESCRIBE_CONFIGS)))


def guard_alter_quotas(access: Access, client: Client, request: Any) -> Verdict:
    """Require AlterConfigs on the cluster."""
    if access.allows_cluster(client, AclOperation.ALTER_CONFIGS):
        return None
    return Forbidden(quotas.refuse_alter(request, _refusal(client, AclOperation.ALTER_CONFIGS)))


def _refusal(client: Client, operation: AclOperation) -> RequestRefused:
    return refusal_of(client, operation, AclResourceType.CLUSTER, CLUSTER_NAME)


def _cluster_refusal(client: Client, operation: AclOperation) -> tuple[int, str | None]:
    return code_and_message(_refusal(client, operation))


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
    ApiKey.DESCRIBE_ACLS: guard_describe_acls,
    ApiKey.CREATE_ACLS: guard_create_acls,
    ApiKey.DELETE_ACLS: guard_delete_acls,
    ApiKey.DESCRIBE_CONFIGS: guard_describe_configs,
    ApiKey.ALTER_CONFIGS: guard_alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: guard_describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: guard_create_partitions,
    ApiKey.DELETE_GROUPS: guard_delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: guard_incremental_alter_configs,
    ApiKey.OFFSET_DELETE: guard_offset_delete,
    ApiKey.DESCRIBE_CLUSTER: guard_describe_cluster,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: guard_describe_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: guard_alter_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: guard_describe_users,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: guard_alter_users,
}
