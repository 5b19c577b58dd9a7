"""Guards that look up topics in the cluster's view: Metadata and DeleteTopics."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin.topics import DeleteTopicsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from logbroker.registry.cluster import ClusterView
from logbroker.security.acl import AclOperation, AclResourceType
from logbroker.server.authorization.access import Access, Client
from logbroker.server.authorization.guards import (
    TOPIC_CODE,
    Finish,
    Verdict,
    add_results,
    split,
    topic_refusal,
)

NO_ID: Final = UUID(int=0)

_Topic = MetadataResponse.MetadataResponseTopic
_Deleted = DeleteTopicsResponse.DeletableTopicResult


class ViewGuards:
    """Guards with the view that this broker applied last."""

    def __init__(self, view: Callable[[], ClusterView], *, auto_create: bool) -> None:
        self._view = view
        self._auto_create = auto_create

    def guard_metadata(self, access: Access, client: Client, request: Any) -> Verdict:
        """Require Describe on each topic, and Create to create missing ones.

        A request for all topics gets those that the client may describe.
        """
        shows_operations = bool(request.include_topic_authorized_operations)
        refused: list[_Topic] = []
        if not request.version and not request.topics:
            request.topics = None  # version 0 has no null
        if request.topics is None:
            self._name_topics(access, client, request, always=shows_operations)
        else:
            refused = self._remove_forbidden(access, client, request)
        if not (refused or shows_operations or request.include_cluster_authorized_operations):
            return None
        return _finish_metadata(access, client, request, refused)

    def guard_delete_topics(self, access: Access, client: Client, request: Any) -> Verdict:
        """Require Delete on each topic; the name of a hidden topic is not revealed."""

        def may_delete(name: str | None) -> bool:
            return name is None or access.allows_topic(client, AclOperation.DELETE, name)

        request.topic_names, forbidden_names = split(request.topic_names or (), may_delete)
        request.topics, forbidden = split(
            request.topics or (), lambda each: may_delete(self._name_of(each))
        )
        refused = [self._not_deleted(access, client, name, NO_ID) for name in forbidden_names]
        refused += [
            self._not_deleted(access, client, self._name_of(each) or "", each.topic_id)
            for each in forbidden
        ]
        return add_results("responses", refused)

    def _name_topics(self, access: Access, client: Client, request: Any, *, always: bool) -> None:
        """Name the visible topics in a request for all, unless the client sees all of them."""
        visible, hidden = split(
            self._view().topics,
            lambda name: access.allows_topic(client, AclOperation.DESCRIBE, name),
        )
        if not hidden and not (always and visible):
            return
        request.topics = [
            MetadataRequest.MetadataRequestTopic(name=name, topic_id=NO_ID) for name in visible
        ]
        request.allow_auto_topic_creation = False

    def _remove_forbidden(self, access: Access, client: Client, request: Any) -> list[_Topic]:
        """Remove the topics that are hidden, or that the client may not create."""
        topics = self._view().topics
        creates = self._auto_create and request.allow_auto_topic_creation is not False
        may_create_all = not creates or access.allows_cluster(client, AclOperation.CREATE)

        def is_allowed(each: Any) -> bool:
            name = self._name_of(each)
            if name is None:
                return True
            if not access.allows_topic(client, AclOperation.DESCRIBE, name):
                return False
            return (
                may_create_all
                or name in topics
                or access.allows_topic(client, AclOperation.CREATE, name)
            )

        request.topics, forbidden = split(request.topics, is_allowed)
        # Without duplicates, as the topics of the response.
        refused = dict.fromkeys((each.name, each.topic_id or NO_ID) for each in forbidden)
        return [
            _Topic(
                error_code=TOPIC_CODE,
                name=name,
                topic_id=NO_ID if name is not None else topic_id,
                is_internal=False,
                partitions=[],
            )
            for name, topic_id in refused
        ]

    def _name_of(self, requested: Any) -> str | None:
        """Return the name of a requested topic; None if there is no topic with its id."""
        if requested.name is not None:
            return str(requested.name)
        return self._view().name_of(requested.topic_id or NO_ID)

    def _not_deleted(self, access: Access, client: Client, name: str, topic_id: UUID) -> _Deleted:
        code, reason = topic_refusal(client, AclOperation.DELETE, name)
        is_visible = topic_id == NO_ID or access.allows_topic(client, AclOperation.DESCRIBE, name)
        return _Deleted(
            name=name if is_visible else None,
            topic_id=topic_id,
            error_code=code,
            error_message=reason if is_visible else None,
        )


def _finish_metadata(access: Access, client: Client, request: Any, refused: list[_Topic]) -> Finish:
    def finish(message: Any) -> Any:
        if request.include_topic_authorized_operations:
            for topic in message.topics:
                if topic.error_code == 0:
                    topic.authorized_operations = access.operations(
                        client, AclResourceType.TOPIC, topic.name
                    )
        if request.include_cluster_authorized_operations:
            message.authorized_operations = access.cluster_operations(client)
        message.topics = [*message.topics, *refused]
        return message

    return finish
