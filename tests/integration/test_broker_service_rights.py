"""The service on `logbroker` over SASL_SSL, with only the rights that docs/kafka.md lists."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from app.config import DAY_MS
from app.domain.accounts import Scope
from app.log.topics import ensure_topics
from app.store import Store
from tests.integration.test_kafka_security import (
    USER,
    check_live_and_replay,
    documented_rights,
    rights_of,
    variables,
)
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.certificates import self_signed
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.apache_kafka import PASSWORDS
from tests.support.kafka.broker_thread import BrokerThread
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S


def test_the_documented_rights_are_enough_on_logbroker(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "127.0.0.1").both
    database = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(database)
    with closing(Store.open(database)) as store:
        _, key = issue_key(store, "default", Scope.OPERATOR, "")
    with ExitStack() as stack:
        broker = stack.enter_context(
            BrokerThread(
                tmp_path / "log",
                "SASL_SSL,PLAINTEXT",
                ssl_certfile=certificate,
                authorizer=True,
                # Who administers the broker on its own machine.
                super_users="User:ANONYMOUS",
            )
        )
        prepare(broker.bootstrap("PLAINTEXT"))
        environment = variables(certificate) | {
            "REWIND_DATABASE": database,
            "REWIND_BOOTSTRAP_SERVERS": broker.bootstrap("SASL_SSL"),
            "REWIND_PORT": "0",
        }
        receiver = stack.enter_context(ReceiverThread())
        api, live, worker = servers = [
            stack.enter_context(
                ServerProcess(["-m", "app", name], tmp_path / f"{name}.log", environment)
            )
            for name in ("api", "live", "worker")
        ]
        url = api.start("rewind api ready on ")
        live.start("rewind live ready")
        worker.start("rewind worker ready")
        assert broker.principals("SASL_SSL") <= {f"User:{USER}", "User:ANONYMOUS"}
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as client:
            check_live_and_replay(client, receiver)
        assert [each.stop() for each in reversed(servers)] == [0, 0, 0]
        assert broker.authentication_failures == 0


def prepare(bootstrap_servers: str) -> None:
    """Create the topics, the user, and its rights."""
    ensure_topics(
        bootstrap_servers, partitions=2, retention_ms=6 * DAY_MS, properties={}, is_audited=True
    )
    admin: Any = AdminClient({"bootstrap.servers": bootstrap_servers})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(USER, credential, PASSWORDS[USER].encode())
    changes = [
        *admin.alter_user_scram_credentials([upsertion]).values(),
        *admin.create_acls(rights_of(USER, documented_rights())).values(),
    ]
    for each in changes:
        each.result(DEADLINE_S)
