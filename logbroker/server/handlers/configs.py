"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of topics and of this broker."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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

from logbroker.config import BrokerConfig
from logbroker.errors import InvalidConfig, InvalidRequest, RequestRefused
from logbroker.registry.registry import Settings
from logbroker.registry.topic import Topic
from logbroker.server.connection import Connection
from logbroker.server.handlers.broker_settings import (
    ConfigSource,
    Synonym,
    broker_settings,
    default_synonyms,
)
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.server.topic_changes import TopicChanges
from logbroker.topic_settings import (
    LOG_CONFIG_DEFAULTS,
    TOPIC_SETTINGS,
    SettingType,
    TopicSetting,
    setting_text,
)
from logbroker.wire.error_codes import code_and_message


class ResourceType(IntEnum):
    """The type of resource that has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_LEVELS: Final = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
"""The levels with other names in Kafka."""

_Resource = (
    AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource
)
_Change = Callable[[Settings], Settings]
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult


def topic_synonyms(setting: TopicSetting, topic: Topic, config: BrokerConfig) -> list[Synonym]:
    """Return what determines the value of a topic's setting, the winner first."""
    synonyms = default_synonyms(setting, config)
    if setting.name in topic.settings:
        own = Synonym(setting.name, topic.settings[setting.name], ConfigSource.TOPIC)
        return [own, *synonyms]
    return synonyms


def config_source(synonyms: list[Synonym]) -> ConfigSource:
    """Return the source of a value with these synonyms."""
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT


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
            results=[self._describe(resource, request) for resource in resources.values()],
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
            _check_unique(each.name for each in resource.configs)
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
                _outcome(each, self._change(each, change, request.validate_only))
                for each in request.resources
            ]

        self._registry_thread.submit(connection, change_all, respond)

    def _describe(
        self,
        resource: DescribeConfigsRequest.DescribeConfigsResource,
        request: DescribeConfigsRequest,
    ) -> _Result:
        error: RequestRefused | None = None
        entries: Iterable[_Entry] = ()
        try:
            entries = self._entries(resource.resource_type, resource.resource_name)
        except RequestRefused as refusal:
            error = refusal
        keys = resource.configuration_keys
        code, message = code_and_message(error)
        return _Result(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                _reduced(entry, request) for entry in entries if not keys or entry.name in keys
            ],
        )

    def _entries(self, kind: int, name: str) -> list[_Entry]:
        if kind == ResourceType.TOPIC:
            topic = self._partitions.view.topic(name)
            return [
                _topic_entry(setting, topic, self._config) for setting in TOPIC_SETTINGS.values()
            ]
        if kind == ResourceType.BROKER:
            if not name:
                # Cluster-wide defaults of brokers, which kafka-configs requests too; none exist.
                return []
            self._check_broker(name)
            return self._broker_entries()
        if kind == ResourceType.BROKER_LOGGER:
            self._check_broker(name)
            return [_entry(each, SettingType.STRING, [level]) for each, level in _loggers()]
        if kind in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
            # Both belong to protocols that are not served, so nothing is configured.
            return []
        allowed = ", ".join(str(int(each)) for each in ResourceType)
        raise InvalidRequest(f"resource type is {kind}; allowed: {allowed}")

    def _broker_entries(self) -> list[_Entry]:
        endpoint = self._partitions.view.brokers.get(self._config.broker_id)
        return [
            _entry(setting.name, setting.kind, setting.synonyms)
            for setting in broker_settings(self._config, endpoint)
        ]

    def _check_broker(self, name: str) -> None:
        if name != str(self._config.broker_id):
            raise InvalidRequest(f"broker is {name!r}; this one is {self._config.broker_id}")

    def _change(
        self,
        resource: _Resource,
        change: Callable[[Any], _Change],
        validate_only: bool,
    ) -> RequestRefused | None:
        apply = self._changes.check_change if validate_only else self._changes.change_settings
        try:
            if resource.resource_type != ResourceType.TOPIC:
                raise InvalidRequest("broker settings cannot be altered; only topic settings can")
            apply(resource.resource_name, change(resource))
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


def _check_unique(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidRequest(f"settings are named twice: {', '.join(twice)}")


def _merged(changes: Iterable[tuple[str, int, str | None]], present: Settings) -> dict[str, str]:
    settings = dict(present)
    for name, operation, value in changes:
        if operation == Operation.DELETE:
            settings.pop(name, None)
        elif operation == Operation.SET or name not in TOPIC_SETTINGS:
            settings[name] = value or ""
        elif TOPIC_SETTINGS[name].kind != SettingType.LIST:
            raise InvalidConfig(f"{name} is not a list; allowed: set and delete")
        else:
            settings[name] = _changed_list(name, operation, value or "", settings)
    return settings


def _changed_list(name: str, operation: int, value: str, settings: Settings) -> str:
    text = settings.get(name, str(LOG_CONFIG_DEFAULTS[TOPIC_SETTINGS[name].field]))
    present, named = _elements(text), _elements(value)
    if operation == Operation.APPEND:
        return ",".join([*present, *(each for each in named if each not in present)])
    if operation == Operation.SUBTRACT:
        return ",".join(each for each in present if each not in named)
    raise InvalidRequest(f"operation on {name} is {operation}; allowed: 0 to 3")


def _elements(text: str) -> list[str]:
    return [each for part in text.split(",") if (each := part.strip())]


def _topic_entry(setting: TopicSetting, topic: Topic, config: BrokerConfig) -> _Entry:
    synonyms = topic_synonyms(setting, topic, config)
    default = setting_text(LOG_CONFIG_DEFAULTS[setting.field])
    return _entry(setting.name, setting.kind, synonyms, default, setting.documentation)


def _entry(
    name: str,
    kind: SettingType,
    synonyms: list[Synonym],
    default: str = "",
    documentation: str | None = None,
) -> _Entry:
    source = config_source(synonyms)
    return _Entry(
        name=name,
        value=synonyms[0].value if synonyms else default,
        read_only=documentation is None,
        config_source=source,
        is_default=source == ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=[_Entry.DescribeConfigsSynonym(**each._asdict()) for each in synonyms],
        config_type=kind,
        documentation=documentation,
    )


def _reduced(entry: _Entry, request: DescribeConfigsRequest) -> _Entry:
    """Remove what the request does not include."""
    if not request.include_synonyms:
        entry.synonyms = []
    if not request.include_documentation:
        entry.documentation = None
    return entry


def _loggers() -> Iterator[tuple[str, Synonym]]:
    """Yield the loggers of the broker with their levels, by Kafka's names."""
    # A copy: other threads may add loggers meanwhile.
    names = [each for each in list(logging.root.manager.loggerDict) if each.startswith("logbroker")]
    for name in ("root", *sorted(names)):
        level = logging.getLogger(name).getEffectiveLevel()
        text = _LEVELS.get(level, logging.getLevelName(level))
        yield name, Synonym(name, text, ConfigSource.STATIC_BROKER)
