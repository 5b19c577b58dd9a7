"""Stock clients that authenticate with SASL_SSL are held to the ACLs of their user."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, ResourceType

from tests.integration.test_broker_sasl import PASSWORD, USER, SaslBroker
from tests.support.kafka.authenticated_clients import (
    AUTHENTICATED_CLIENTS,
    NOT_REFUSED,
    Credentials,
)
from tests.support.kafka.guarded_broker import ANONYMOUS, acl
from tests.support.processes.go_programs import BUILD_S
from tests.support.processes.waiting import DEADLINE_S

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC_FORBIDDEN, GROUP_FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
CLIENTS = [
    pytest.param(name, marks=[pytest.mark.long, pytest.mark.timeout(3 * BUILD_S)])
    if name == "franz-go"
    else name
    for name in AUTHENTICATED_CLIENTS
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """A broker whose administrator comes without authentication, from its own machine."""
    folder = tmp_path_factory.mktemp("sasl-acls")
    with SaslBroker(folder, authorizer=True, super_users=ANONYMOUS) as broker:
        yield broker


def allow(broker: SaslBroker, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    wanted: list[AclBinding] = [
        acl(kind, name, operation, principal=f"User:{USER}", host="*") for operation in operations
    ]
    for result in broker.admin.create_acls(wanted).values():
        result.result(DEADLINE_S)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_does_only_what_its_user_may(
    broker: SaslBroker, name: str, mechanism: str
) -> None:
    allowed, visible, hidden, group = (
        f"{name}-{mechanism}-{kind}" for kind in ("allowed", "visible", "hidden", "readers")
    )
    for topic in (allowed, visible, hidden):
        broker.make_topic(topic)
    allow(broker, ResourceType.TOPIC, allowed, AclOperation.WRITE, AclOperation.READ)
    allow(broker, ResourceType.TOPIC, visible, AclOperation.DESCRIBE)
    allow(broker, ResourceType.GROUP, group, AclOperation.READ)
    credentials = Credentials(
        broker.bootstrap("SASL_SSL"), broker.authority.certificate, mechanism, USER, PASSWORD
    )
    client = AUTHENTICATED_CLIENTS[name](credentials)

    seen = client.topics()
    assert seen & {allowed, visible, hidden} == {allowed, visible}
    assert client.write(allowed, "value") == NOT_REFUSED
    assert client.write(visible, "value") == TOPIC_FORBIDDEN
    assert client.write(hidden, "value") == TOPIC_FORBIDDEN
    assert client.read(allowed, group) == "value"
    assert client.read(visible, group) == TOPIC_FORBIDDEN
    assert client.read(allowed, "another-group") == GROUP_FORBIDDEN
