"""What the client of a connection may do; without an authorizer, everything."""

from typing import Final, NamedTuple

from logbroker.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    RequestRefused,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from logbroker.security.acl import CLUSTER_NAME, OPERATIONS_OF, AclOperation, AclResourceType
from logbroker.security.authorizer import AclIndex, Authorizer, resource_name
from logbroker.security.principal import Principal

REFUSALS: Final[dict[AclResourceType, type[RequestRefused]]] = {
    AclResourceType.TOPIC: TopicAuthorizationFailed,
    AclResourceType.GROUP: GroupAuthorizationFailed,
    AclResourceType.CLUSTER: ClusterAuthorizationFailed,
    AclResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}


class Client(NamedTuple):
    """Who sends a request, and from which address."""

    principal: Principal
    host: str


class Access:
    """Answers what clients may do; `authorizer` is None if everyone may do everything."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self.is_restricted: Final = authorizer is not None

    def use(self, acls: AclIndex) -> bool:
        """Decide by these ACLs from now on; returns whether they differ from those before."""
        if self._authorizer is None or self._authorizer.acls is acls:
            return False
        self._authorizer.use(acls)
        return True

    def allows(
        self, client: Client, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Return whether `client` may do `operation` with a resource."""
        return self._authorizer is None or self._authorizer.is_allowed(
            *client, operation, resource_type, name
        )

    def allows_topic(self, client: Client, operation: AclOperation, name: str) -> bool:
        """Return whether `client` may do `operation` with a topic."""
        return self.allows(client, operation, AclResourceType.TOPIC, name)

    def allows_group(self, client: Client, operation: AclOperation, group_id: str) -> bool:
        """Return whether `client` may do `operation` with a consumer group."""
        return self.allows(client, operation, AclResourceType.GROUP, group_id)

    def allows_cluster(self, client: Client, operation: AclOperation) -> bool:
        """Return whether `client` may do `operation` with the cluster."""
        return self.allows(client, operation, AclResourceType.CLUSTER, CLUSTER_NAME)

    def allows_any_topic(self, client: Client, operation: AclOperation) -> bool:
        """Return whether `client` may do `operation` with some topic."""
        return self._authorizer is None or self._authorizer.is_allowed_for_any(
            *client, operation, AclResourceType.TOPIC
        )

    def check_topic(self, client: Client, operation: AclOperation, name: str) -> None:
        """Reject an operation with a topic.

        Raises:
            TopicAuthorizationFailed: `client` may not do it.
        """
        if not self.allows_topic(client, operation, name):
            raise refusal_of(client, operation, AclResourceType.TOPIC, name)

    def check_produce(self, client: Client, transactional_id: str | None, topic: str) -> None:
        """Reject a batch that the client may not write.

        Raises:
            TransactionalIdAuthorizationFailed: `client` may not use the transactional id.
            TopicAuthorizationFailed: `client` may not write to the topic.
        """
        if transactional_id is not None:
            kind = AclResourceType.TRANSACTIONAL_ID
            if not self.allows(client, AclOperation.WRITE, kind, transactional_id):
                raise refusal_of(client, AclOperation.WRITE, kind, transactional_id)
        self.check_topic(client, AclOperation.WRITE, topic)

    def operations(self, client: Client, resource_type: AclResourceType, name: str) -> set[int]:
        """Return the numbers of the operations that `client` may do with a resource."""
        if self._authorizer is None:
            return {int(each) for each in OPERATIONS_OF[resource_type]}
        allowed = self._authorizer.allowed_operations(*client, resource_type, name)
        return {int(each) for each in allowed}

    def cluster_operations(self, client: Client) -> set[int]:
        """Return what `client` may do with the cluster; nothing if it may not describe it."""
        if not self.allows_cluster(client, AclOperation.DESCRIBE):
            return set()
        return self.operations(client, AclResourceType.CLUSTER, CLUSTER_NAME)


def refusal_of(
    client: Client, operation: AclOperation, resource_type: AclResourceType, name: str
) -> RequestRefused:
    """Return the error of a forbidden operation; the message names all parts of it."""
    resource = resource_name(resource_type, name)
    return REFUSALS[resource_type](
        f"{client.principal} may not {operation.name} {resource} from host {client.host}"
    )
