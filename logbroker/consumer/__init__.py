"""The 2011 paper's clients: a producer of message sets, with an audit or without, and consumers.

A name is imported at its first use. A producer starts without Kazoo,
which only the consumers load.
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
