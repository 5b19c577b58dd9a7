"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of topics and of this broker."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Any, Final

from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from logbroker.config import TOPIC_SETTINGS, BrokerConfig, LogConfig
from logbroker.errors import InvalidConfig, InvalidRequest, RequestRefused
from logbroker.registry.registry import Settings
from logbroker.registry.topic import Topic
from logbroker.server.connection import Connection
from logbroker.server.leadership import log_config
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.server.topic_changes import TopicChanges
from logbroker.wire.error_codes import code_and_message


class ResourceType(IntEnum):
    """The type of resource that has settings."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """The source of a value (KIP-226)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


LONG_TYPE: Final = 5
STRING_TYPE: Final = 2

_Resource = (
    AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource
)
_Change = Callable[[Settings], Settings]
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult


def setting_values(config: LogConfig) -> dict[str, str]:
    """Return every topic setting as text, by its Kafka name."""
    return {name: str(getattr(config, setting.field)) for name, setting in TOPIC_SETTINGS.items()}


def config_source(setting: str, topic: Topic | None) -> ConfigSource:
    """Return whether the value of `setting` is the topic's or the default."""
    if topic is not None and setting in topic.settings:
        return ConfigSource.TOPIC
    return ConfigSource.DEFAULT


class ConfigHandlers:
    """Returns settings and changes those of topics; broker settings change by a restart."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        changes: TopicChanges,
        registry_thread: RegistryThread,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._changes = changes
        self._registry_thread = registry_thread

    def describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Return the settings, or an error, of each resource without duplicates."""
        resources = {(one.resource_type, one.resource_name): one for one in request.resources}
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                self._describe(resource, with_documentation=bool(request.include_documentation))
                for resource in resources.values()
            ],
        )

    def alter(
        self,
        request: AlterConfigsRequest,
        connection: Connection,
        respond: Callable[[AlterConfigsResponse], None],
    ) -> None:
        """Replace all settings of each topic."""

        def change(resource: AlterConfigsRequest.AlterConfigsResource) -> _Change:
            return partial(_replaced, {each.name: each.value or "" for each in resource.configs})

        kind = AlterConfigsResponse.AlterConfigsResourceResponse
        self._alter(
            request,
            connection,
            change,
            lambda outcomes: respond(
                AlterConfigsResponse(
                    throttle_time_ms=0, responses=[kind(**each) for each in outcomes]
                )
            ),
        )

    def alter_incrementally(
        self,
        request: IncrementalAlterConfigsRequest,
        connection: Connection,
        respond: Callable[[IncrementalAlterConfigsResponse], None],
    ) -> None:
        """Set or delete individual settings of each topic."""

        def change(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> _Change:
            changes = [(each.name, each.config_operation, each.value) for each in resource.configs]
            return partial(_merged, changes)

        kind = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        self._alter(
            request,
            connection,
            change,
            lambda outcomes: respond(
                IncrementalAlterConfigsResponse(
                    throttle_time_ms=0, responses=[kind(**each) for each in outcomes]
                )
            ),
        )

    def _alter(
        self,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        connection: Connection,
        change: Callable[[Any], _Change],
        respond: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """Apply `change` of each resource on the registry's thread; respond with the outcomes."""

        def change_all() -> list[dict[str, Any]]:
            return [
                _outcome(each, self._change(each, change(each), request.validate_only))
                for each in request.resources
            ]

        self._registry_thread.submit(connection, change_all, respond)

    def _describe(
        self,
        resource: DescribeConfigsRequest.DescribeConfigsResource,
        *,
        with_documentation: bool,
    ) -> _Result:
        error: RequestRefused | None = None
        entries: Iterable[_Entry] = ()
        try:
            entries = self._entries(resource, with_documentation=with_documentation)
        except RequestRefused as refusal:
            error = refusal
        keys = resource.configuration_keys
        code, message = code_and_message(error)
        return _Result(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[entry for entry in entries if keys is None or entry.name in keys],
        )

    def _entries(
        self,
        resource: DescribeConfigsRequest.DescribeConfigsResource,
        *,
        with_documentation: bool,
    ) -> list[_Entry]:
        if resource.resource_type == ResourceType.TOPIC:
            topic = self._partitions.view.topic(resource.resource_name)
            values = setting_values(log_config(self._config, topic))
            return [
                _topic_entry(name, value, topic, with_documentation=with_documentation)
                for name, value in values.items()
            ]
        if resource.resource_type == ResourceType.BROKER:
            if not resource.resource_name:
                # Cluster-wide defaults of brokers, which kafka-configs requests too; none exist.
                return []
            self._check_broker(resource.resource_name)
            return self._broker_entries()
        raise InvalidRequest(f"resource type is {resource.resource_type}; allowed: 2 and 4")

    def _broker_entries(self) -> list[_Entry]:
        names = (
            ("broker.id", "broker_id"),
            ("auto.create.topics.enable", "auto_create_topics"),
            ("num.partitions", "num_partitions"),
            ("max.connections", "connections_max"),
            ("socket.request.max.bytes", "request_bytes_max"),
            ("producer.id.expiration.s", "producer_id_expiration_s"),
        )
        return [
            _Entry(
                name=name,
                value=_text(getattr(self._config, field)),
                read_only=True,
                config_source=ConfigSource.STATIC_BROKER,
                is_sensitive=False,
                synonyms=[],
                config_type=STRING_TYPE,
                documentation=None,
            )
            for name, field in names
        ]

    def _check_broker(self, name: str) -> None:
        if name != str(self._config.broker_id):
            raise InvalidRequest(f"broker is {name!r}; this one is {self._config.broker_id}")

    def _change(
        self,
        resource: _Resource,
        change: _Change,
        validate_only: bool,
    ) -> RequestRefused | None:
        apply = self._changes.check_change if validate_only else self._changes.change_settings
        try:
            if resource.resource_type != ResourceType.TOPIC:
                raise InvalidRequest("broker settings cannot be altered; only topic settings can")
            apply(resource.resource_name, change)
        except RequestRefused as refusal:
            return refusal
        return None


def _outcome(resource: _Resource, refusal: RequestRefused | None) -> dict[str, Any]:
    code, message = code_and_message(refusal)
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _replaced(settings: Settings, _present: Settings) -> Settings:
    return settings


def _merged(changes: Iterable[tuple[str, int, str | None]], present: Settings) -> dict[str, str]:
    settings = dict(present)
    for name, operation, value in changes:
        if name not in TOPIC_SETTINGS:
            known = ", ".join(TOPIC_SETTINGS)
            raise InvalidConfig(f"unknown topic setting {name!r}; known: {known}")
        if operation == Operation.SET:
            settings[name] = value or ""
        elif operation == Operation.DELETE:
            settings.pop(name, None)
        else:
            raise InvalidConfig(f"{name} is not a list; allowed: set and delete")
    return settings


def _topic_entry(name: str, value: str, topic: Topic, *, with_documentation: bool) -> _Entry:
    setting = TOPIC_SETTINGS[name]
    source = config_source(name, topic)
    return _Entry(
        name=name,
        value=value,
        read_only=False,
        config_source=source,
        is_default=source == ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=[_Entry.DescribeConfigsSynonym(name=name, value=value, source=source)],
        config_type=LONG_TYPE if setting.is_number else STRING_TYPE,
        documentation=setting.documentation if with_documentation else None,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
