"""The clients of the Kafka paper: a producer of message sets, with or without audit, and consumers.

Each name is imported at its first use: a producer does not load kazoo, which only consumers need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from logbroker.client.errors import (
        BrokersUnavailable,
        ClientClosed,
        ClientError,
        FetchFailed,
        SendFailed,
        StreamsExist,
    )
    from logbroker.consumer.audited_producer import AuditedProducer
    from logbroker.consumer.connector import ConsumerConnector
    from logbroker.consumer.fetching import Message
    from logbroker.consumer.producer import NewMessage, Producer, SentSet
    from logbroker.consumer.stream import MessageStream

__all__ = [
    "AuditedProducer",
    "BrokersUnavailable",
    "ClientClosed",
    "ClientError",
    "ConsumerConnector",
    "FetchFailed",
    "Message",
    "MessageStream",
    "NewMessage",
    "Producer",
    "SendFailed",
    "SentSet",
    "StreamsExist",
]

_MODULES: Final = {
    "logbroker.client.errors": (
        *("BrokersUnavailable", "ClientClosed", "ClientError"),
        *("FetchFailed", "SendFailed", "StreamsExist"),
    ),
    "logbroker.consumer.audited_producer": ("AuditedProducer",),
    "logbroker.consumer.connector": ("ConsumerConnector",),
    "logbroker.consumer.fetching": ("Message",),
    "logbroker.consumer.producer": ("NewMessage", "Producer", "SentSet"),
    "logbroker.consumer.stream": ("MessageStream",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # mypy would accept any name of a module with this function

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)
