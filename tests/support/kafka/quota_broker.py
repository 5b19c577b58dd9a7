"""A broker in the test process, and a connection without quotas that changes those of others."""

from pathlib import Path
from typing import Any

from kafka.protocol.admin.topics import CreateTopicsRequest, CreateTopicsResponse

from logbroker.quotas.entities import QuotaKey
from logbroker.security.scram import (
    ITERATIONS_MIN,
    ScramMechanism,
    derive_credential,
    salt_password,
)
from tests.support.kafka.broker_thread import BrokerThread
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.raw_quotas import (
    Entity,
    alter_quotas,
    alteration,
    describe_quotas,
    described,
)

RAW: Entity = {"client-id": "raw"}
"""The client id of raw connections on the second listener; that of the first has no quota."""

LIMITED, ADMIN = "LIMITED", "ADMIN"


class QuotaBroker(BrokerThread):
    """A broker with a connection that changes quotas, under a client id of its own."""

    def __init__(self, folder: Path, protocol: str = "PLAINTEXT", **settings: Any) -> None:
        protocols = f"{LIMITED}:{protocol},{ADMIN}:PLAINTEXT"
        super().__init__(folder, f"{LIMITED},{ADMIN}", protocols=protocols, **settings)
        self.admin = AdminConnection(self.bootstrap(ADMIN))

    def __exit__(self, *_: object) -> None:
        self.admin.socket.close()
        super().__exit__()

    def set(self, entity: Entity, **values: float | None) -> None:
        assert alter_quotas(self.admin, alteration(entity, values)) == [(0, None)]

    def add_user(self, name: str, password: str) -> None:
        """Add a user of SASL."""
        mechanism, salt = ScramMechanism.SCRAM_SHA_256, bytes(16)
        salted = salt_password(mechanism, password, salt, ITERATIONS_MIN)
        credential = derive_credential(mechanism, salted, salt, ITERATIONS_MIN)
        self.broker._registry.change_users(
            lambda users: users.with_credential(name, mechanism, credential)
        )

    def clear(self) -> None:
        """Remove every quota."""
        self.admin.clear_quotas()

    def connect(self) -> RawConnection:
        return RawConnection(self.bootstrap(LIMITED))

    @property
    def muted(self) -> int:
        return self.broker._counters.connections_muted

    def throttled(self, key: str) -> int:
        return self.broker._meters.counts.requests[QuotaKey(key)]


class AdminConnection(RawConnection):
    """A raw connection with the client id `admin`."""

    def encode(self, request: Any, version: int) -> bytes:
        return super().encode(request, version).replace(b"\0\3raw", b"\0\3adm", 1)

    def clear_quotas(self) -> None:
        changes = [
            alteration(entity, dict.fromkeys(values))
            for entity, values in described(describe_quotas(self))
        ]
        assert all(code == 0 for code, _ in alter_quotas(self, *changes))


def create_topic(
    connection: RawConnection,
    name: str,
    partitions: int = 1,
    *,
    version: int = 7,
    validate_only: bool = False,
) -> tuple[int, int]:
    """Create a topic; returns error code and throttle time."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate_only)
    answer = connection.ask(request, CreateTopicsResponse, version)
    return answer.topics[0].error_code, answer.throttle_time_ms
