"""Guards of the requests about topics, their logs and their settings."""

from collections.abc import Callable
from typing import Any, Final

from kafka.protocol.admin.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.admin.topics import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
)
from kafka.protocol.consumer.offsets import ListOffsetsResponse, OffsetForLeaderEpochResponse

from logbroker.security.acl import CLUSTER_NAME, AclOperation, AclResourceType
from logbroker.server.authorization.access import Access, Client, refusal_of
from logbroker.server.authorization.guards import (
    TOPIC_CODE,
    RequestGuard,
    Verdict,
    add_results,
    remove_forbidden_topics,
    split,
    topic_refusal,
)
from logbroker.server.handlers.configs import ResourceType
from logbroker.wire.error_codes import code_and_message

_Offsets = ListOffsetsResponse.ListOffsetsTopicResponse
_EpochEnds = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_DeletedRecords = DeleteRecordsResponse.DeleteRecordsTopicResult
_CreatedTopic = CreateTopicsResponse.CreatableTopicResult


def _require_on_topics(
    operation: AclOperation,
    topic_type: Callable[..., Any],
    refuse: Callable[[Any], Any],
    name_field: str = "name",
) -> RequestGuard:
    """Return a guard that requires `operation` on each topic.

    `refuse` makes the result of a partition of a forbidden topic; `name_field` has the topic's name
    in request and response.
    """

    def guard(access: Access, client: Client, request: Any) -> Verdict:
        forbidden = remove_forbidden_topics(access, client, operation, request, name_field)
        refused = [
            topic_type(
                **{name_field: getattr(topic, name_field)},
                partitions=[refuse(each) for each in topic.partitions],
            )
            for topic in forbidden
        ]
        return add_results("topics", refused)

    return guard


guard_list_offsets: Final = _require_on_topics(
    AclOperation.DESCRIBE,
    _Offsets,
    lambda each: _Offsets.ListOffsetsPartitionResponse(
        partition_index=each.partition_index,
        error_code=TOPIC_CODE,
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
    ),
)

guard_offset_for_leader_epoch: Final = _require_on_topics(
    AclOperation.DESCRIBE,
    _EpochEnds,
    lambda each: _EpochEnds.EpochEndOffset(
        error_code=TOPIC_CODE, partition=each.partition, leader_epoch=-1, end_offset=-1
    ),
    name_field="topic",
)

guard_delete_records: Final = _require_on_topics(
    AclOperation.DELETE,
    _DeletedRecords,
    lambda each: _DeletedRecords.DeleteRecordsPartitionResult(
        partition_index=each.partition_index, low_watermark=-1, error_code=TOPIC_CODE
    ),
)


def guard_create_topics(access: Access, client: Client, request: Any) -> Verdict:
    """Require Create on the cluster or on each topic; settings are shown with DescribeConfigs."""
    may_create_all = access.allows_cluster(client, AclOperation.CREATE)
    request.topics, forbidden = split(
        request.topics,
        lambda each: may_create_all or access.allows_topic(client, AclOperation.CREATE, each.name),
    )
    refused = [
        _CreatedTopic(
            name=each.name,
            error_code=code,
            error_message=reason,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
        for each in forbidden
        for code, reason in [topic_refusal(client, AclOperation.CREATE, each.name)]
    ]

    def finish(message: Any) -> Any:
        for each in message.topics:
            if not access.allows_topic(client, AclOperation.DESCRIBE_CONFIGS, each.name):
                each.topic_config_error_code = TOPIC_CODE
                each.num_partitions = each.replication_factor = -1
                each.configs = None
        message.topics += refused
        return message

    return finish


def guard_create_partitions(access: Access, client: Client, request: Any) -> Verdict:
    """Require Alter on each topic."""
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    forbidden = remove_forbidden_topics(access, client, AclOperation.ALTER, request)
    refused = [
        result(name=each.name, error_code=code, error_message=reason)
        for each in forbidden
        for code, reason in [topic_refusal(client, AclOperation.ALTER, each.name)]
    ]
    return add_results("results", refused)


def guard_describe_configs(access: Access, client: Client, request: Any) -> Verdict:
    """Require DescribeConfigs on each topic, or on the cluster for brokers."""
    result = DescribeConfigsResponse.DescribeConfigsResult
    forbidden = _split_resources(access, client, AclOperation.DESCRIBE_CONFIGS, request)
    return add_results("results", [result(**each, configs=[]) for each in forbidden])


def guard_alter_configs(access: Access, client: Client, request: Any) -> Verdict:
    """Require AlterConfigs on each topic, or on the cluster for brokers."""
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    forbidden = _split_resources(access, client, AclOperation.ALTER_CONFIGS, request)
    return add_results("responses", [result(**each) for each in forbidden])


def guard_incremental_alter_configs(access: Access, client: Client, request: Any) -> Verdict:
    """Require AlterConfigs on each topic, or on the cluster for brokers."""
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    forbidden = _split_resources(access, client, AclOperation.ALTER_CONFIGS, request)
    return add_results("responses", [result(**each) for each in forbidden])


def _split_resources(
    access: Access, client: Client, operation: AclOperation, request: Any
) -> list[dict[str, Any]]:
    """Remove the forbidden resources of a request; returns the fields of their results."""

    def protected(resource: Any) -> tuple[AclResourceType, str]:
        if resource.resource_type == ResourceType.TOPIC:
            return AclResourceType.TOPIC, resource.resource_name
        return AclResourceType.CLUSTER, CLUSTER_NAME

    request.resources, forbidden = split(
        request.resources, lambda each: access.allows(client, operation, *protected(each))
    )
    fields = []
    for each in forbidden:
        code, reason = code_and_message(refusal_of(client, operation, *protected(each)))
        fields.append(
            {
                "error_code": code,
                "error_message": reason,
                "resource_type": each.resource_type,
                "resource_name": each.resource_name,
            }
        )
    return fields
