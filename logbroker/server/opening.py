"""Opens the data directory and the registry, and checks that they belong together."""

from dataclasses import replace
from uuid import UUID

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError, StorageFailed, UnknownTopicId
from logbroker.registry.cluster import ClusterView
from logbroker.registry.local.registry import REGISTRY_FILE, LocalRegistry
from logbroker.registry.registry import Registry
from logbroker.server.leadership import log_config
from logbroker.storage.identity import META_NAME, DirectoryIdentity, new_directory_id
from logbroker.storage.log_directory import LogDirectory, Owner


def open_data(config: BrokerConfig, now_ms: int) -> tuple[Registry, LogDirectory, ClusterView]:
    """Return the registry, the opened logs, and the view with which they were opened.

    The view has no brokers yet. Nothing is changed before all checks have passed.

    Raises:
        DataDirectoryInUse: another process has the directory.
        ConfigurationError: the directory belongs to another broker or cluster, or the
            registry cannot be opened.
        StorageFailed: a disk operation failed.
    """
    try:
        logs = LogDirectory.claim(config.data_dir)
    except OSError as error:
        raise ConfigurationError(f"data_dir {config.data_dir} cannot be used: {error}") from error
    try:
        return _open_claimed(config, logs, now_ms)
    except BaseException:
        logs.release()
        raise


def _open_claimed(
    config: BrokerConfig, logs: LogDirectory, now_ms: int
) -> tuple[Registry, LogDirectory, ClusterView]:
    found = logs.identity
    _check_kind(config, is_used=found is not None)
    if found is not None:
        _check(config, "broker.id", str(found.broker_id), str(config.broker_id))
    directory_id = new_directory_id() if found is None else found.directory_id
    registry = _open_registry(config, directory_id)
    try:
        view = replace(registry.view, brokers={}, coordinators={})
        if found is None:
            logs.set_identity(DirectoryIdentity(view.cluster_id, config.broker_id, directory_id))
        else:
            _check(config, "cluster.id", found.cluster_id, view.cluster_id)
        logs.load(lambda topic_id: _owner(config, view, topic_id), now_ms, view.unreadable)
    except OSError as error:
        registry.close()
        raise StorageFailed(f"data_dir {config.data_dir} cannot be opened: {error}") from error
    except BaseException:
        registry.close()
        raise
    return registry, logs, view


def _check_kind(config: BrokerConfig, *, is_used: bool) -> None:
    """Reject the directory of a standalone broker in a cluster, and vice versa."""
    file = config.data_dir / REGISTRY_FILE
    if config.zookeeper is None:
        if is_used and not file.exists():
            raise ConfigurationError(
                f"zookeeper is not set, but {config.data_dir} belongs to a cluster: "
                f"it has {META_NAME} without {REGISTRY_FILE}"
            )
    elif file.exists():
        raise ConfigurationError(
            f"zookeeper is {config.zookeeper}, but {file} belongs to a standalone broker"
        )


def _check(config: BrokerConfig, name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise ConfigurationError(
            f"{config.data_dir / META_NAME} has {name} {found}; this broker has {wanted}"
        )


def _open_registry(config: BrokerConfig, directory_id: str) -> Registry:
    if config.zookeeper is None:
        return LocalRegistry.open(config.data_dir, config.broker_id)
    # A standalone broker starts without loading Kazoo.
    from logbroker.registry.zookeeper.client_settings import read_zookeeper_config
    from logbroker.registry.zookeeper.registry import ZooKeeperRegistry

    return ZooKeeperRegistry.open(
        config.zookeeper,
        config.broker_id,
        config.zookeeper_session_timeout_s,
        directory_id,
        read_zookeeper_config(config.zookeeper_config),
    )


def _owner(config: BrokerConfig, view: ClusterView, topic_id: UUID) -> Owner | None:
    try:
        topic = view.topic_by_id(topic_id)
    except UnknownTopicId:
        return None
    return Owner(topic.name, log_config(config, topic))
