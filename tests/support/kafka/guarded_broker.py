"""A broker with an authorizer, and a listener for its administrator beside that for clients.

Both listeners are PLAINTEXT, so every client is User:ANONYMOUS. The host tells them apart: the
administrator comes over IPv4, clients over IPv6.
"""

from functools import cached_property
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S

ADMIN_HOST, CLIENT_HOST = "127.0.0.1", "::1"
ANONYMOUS = "User:ANONYMOUS"
CLUSTER = "kafka-cluster"


def acl(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    host: str = CLIENT_HOST,
    principal: str = ANONYMOUS,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """Return an ACL of confluent-kafka; by default it allows clients something."""
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def acl_filter(
    kind: ResourceType = ResourceType.ANY,
    name: str | None = None,
    pattern: ResourcePatternType = ResourcePatternType.ANY,
    principal: str | None = None,
) -> AclBindingFilter:
    """Return a filter of confluent-kafka; by default it selects every ACL."""
    # Its type hints omit None, which matches everything.
    text: Any = {"name": name, "principal": principal}
    host: Any = None
    return AclBindingFilter(
        kind,
        text["name"],
        pattern,
        text["principal"],
        host,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


EVERYTHING_FOR_ADMIN = [
    acl(kind, name, AclOperation.ALL, host=ADMIN_HOST)
    for kind, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.BROKER, CLUSTER),
        (ResourceType.TRANSACTIONAL_ID, "*"),
    )
]


class GuardedBroker(BrokerProcess):
    """`logbroker serve --authorizer`, which allows its clients nothing at first."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        super().__init__(data_dir, *options)
        self.client_port = free_port()
        self.super_users = ""

    @property
    def client_servers(self) -> str:
        return f"[{CLIENT_HOST}]:{self.client_port}"

    @cached_property
    def admin(self) -> AdminClient:
        """A client of the administrator, which lives as long as its results are awaited."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def launch(self) -> None:
        listeners = f"ADMIN://{ADMIN_HOST}:{self.port},CLIENTS://[{CLIENT_HOST}]:{self.client_port}"
        self._command = [
            *self._wrapped,
            *("--data-dir", str(self.data_dir), "--listeners", listeners),
            *("--listener-security-protocol-map", "ADMIN:PLAINTEXT,CLIENTS:PLAINTEXT"),
            *("--authorizer", "--auto-create-topics", "--super-users", self.super_users),
            *self._options,
        ]
        super(BrokerProcess, self).launch()

    def serve_guarded(self) -> Self:
        """Start with a super user, allow the administrator everything, and start without it."""
        self.super_users = ANONYMOUS
        self.serve()
        self.add(*EVERYTHING_FOR_ADMIN)
        self.stop()
        self.super_users = ""
        self.serve()
        return self

    def add(self, *acls: AclBinding) -> None:
        """Create ACLs, as the administrator."""
        for result in self.admin.create_acls(list(acls), request_timeout=DEADLINE_S).values():
            result.result(DEADLINE_S)
