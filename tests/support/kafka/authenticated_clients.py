"""Stock clients that connect over SASL_SSL, behind one interface.

Each operation returns the name of Kafka's error code when it is refused.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.support.processes.go_programs import require_go_program
from tests.support.processes.waiting import DEADLINE_S

NOT_REFUSED: Final = ""

Result = TypeVar("Result")


class Credentials(NamedTuple):
    """A listener, and a user of it."""

    bootstrap_servers: str
    authority: Path
    mechanism: str
    user: str
    password: str


class AuthenticatedClient(Protocol):
    """A client library that connects as one user."""

    def topics(self) -> set[str]: ...

    def write(self, topic: str, value: str) -> str: ...

    def read(self, topic: str, group: str) -> str:
        """Return the first record of a topic, read as a member of a group."""


class ConfluentClient:
    """librdkafka, by confluent-kafka."""

    def __init__(self, credentials: Credentials) -> None:
        self._settings = {
            "bootstrap.servers": credentials.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(credentials.authority),
            "sasl.mechanisms": credentials.mechanism,
            "sasl.username": credentials.user,
            "sasl.password": credentials.password,
        }

    def topics(self) -> set[str]:
        return set(AdminClient({**self._settings}).list_topics(timeout=DEADLINE_S).topics)

    def write(self, topic: str, value: str) -> str:
        errors: list[str] = []
        producer = Producer(self._settings)
        producer.produce(
            topic,
            value.encode(),
            on_delivery=lambda error, _: errors.append(error.name() if error else NOT_REFUSED),
        )
        assert producer.flush(DEADLINE_S) == 0
        return errors[0]

    def read(self, topic: str, group: str) -> str:
        settings: dict[str, Any] = {"group.id": group, "auto.offset.reset": "earliest"}
        with closing(Consumer({**self._settings, **settings})) as consumer:
            consumer.subscribe([topic])
            message: Any = consumer.poll(DEADLINE_S)
            assert message is not None
            return str(message.error().name() if message.error() else message.value().decode())


class KafkaPythonClient:
    """kafka-python."""

    def __init__(self, credentials: Credentials) -> None:
        self._settings = {
            "bootstrap_servers": credentials.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(credentials.authority),
            "sasl_mechanism": credentials.mechanism,
            "sasl_plain_username": credentials.user,
            "sasl_plain_password": credentials.password,
        }

    def topics(self) -> set[str]:
        with closing(kafka.KafkaConsumer(**self._settings)) as consumer:
            return set(consumer.topics())

    def write(self, topic: str, value: str) -> str:
        with closing(kafka.KafkaProducer(**self._settings)) as producer:
            try:
                producer.send(topic, value.encode()).get(DEADLINE_S)
            except kafka.errors.BrokerResponseError as error:
                return _name(error)
        return NOT_REFUSED

    def read(self, topic: str, group: str) -> str:
        with closing(
            kafka.KafkaConsumer(
                topic,
                **self._settings,
                group_id=group,
                auto_offset_reset="earliest",
                consumer_timeout_ms=int(DEADLINE_S * 1000),
            )
        ) as consumer:
            try:
                return str(next(consumer).value.decode())
            except kafka.errors.BrokerResponseError as error:
                return _name(error)


class AiokafkaClient:
    """aiokafka."""

    def __init__(self, credentials: Credentials) -> None:
        self._settings = {
            "bootstrap_servers": credentials.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_context": create_ssl_context(cafile=str(credentials.authority)),
            "sasl_mechanism": credentials.mechanism,
            "sasl_plain_username": credentials.user,
            "sasl_plain_password": credentials.password,
        }

    def topics(self) -> set[str]:
        async def list_topics(consumer: Any) -> set[str]:
            return set(await consumer.topics())

        return self._run(aiokafka.AIOKafkaConsumer, list_topics)

    def write(self, topic: str, value: str) -> str:
        async def write(producer: Any) -> str:
            await producer.send_and_wait(topic, value.encode())
            return NOT_REFUSED

        return self._unless_refused(aiokafka.AIOKafkaProducer, write)

    def read(self, topic: str, group: str) -> str:
        async def read(consumer: Any) -> str:
            consumer.subscribe([topic])
            return str((await consumer.getone()).value.decode())

        settings = {"group_id": group, "auto_offset_reset": "earliest"}
        return self._unless_refused(aiokafka.AIOKafkaConsumer, read, **settings)

    def _unless_refused(
        self, kind: Any, use: Callable[[Any], Coroutine[Any, Any, str]], **settings: Any
    ) -> str:
        try:
            return self._run(kind, use, **settings)
        except aiokafka.errors.BrokerResponseError as error:
            return _name(error)

    def _run(
        self, kind: Any, use: Callable[[Any], Coroutine[Any, Any, Result]], **settings: Any
    ) -> Result:
        async def run() -> Result:
            client = kind(**self._settings, **settings)
            try:
                await client.start()
                async with asyncio.timeout(DEADLINE_S):
                    return await use(client)
            finally:
                await client.stop()

        return asyncio.run(run())


def _name(error: Any) -> str:
    return str(error.message)


class FranzGoClient:
    """franz-go, by a program in Go."""

    def __init__(self, credentials: Credentials) -> None:
        self._program = require_go_program(Path(__file__).parent / "franz_go")
        self._arguments = [str(each) for each in credentials]

    def topics(self) -> set[str]:
        return set(self._run("topics").get("topics", ()))

    def write(self, topic: str, value: str) -> str:
        return str(self._run("write", topic, value).get("error", NOT_REFUSED))

    def read(self, topic: str, group: str) -> str:
        done = self._run("read", topic, group)
        return str(done.get("error") or done["value"])

    def _run(self, *operation: str) -> dict[str, Any]:
        done = subprocess.run(
            [self._program, *self._arguments, *operation],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


AUTHENTICATED_CLIENTS: Final[dict[str, Callable[[Credentials], AuthenticatedClient]]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
    "franz-go": FranzGoClient,
}
