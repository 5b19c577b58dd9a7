"""The 2011 paper's clients: a producer of message sets, with an audit or without, and consumers.

A name is imported at its first use. Most programs import single modules of this package, and
start without Kazoo, which the consumers load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from logbroker.client.audited_producer import AuditedProducer
    from logbroker.client.connector import ConsumerConnector
    from logbroker.client.errors import (
        BrokersUnavailable,
        ClientClosed,
        ClientError,
        FetchFailed,
        SendFailed,
        StreamsExist,
    )
    from logbroker.client.message import Message
    from logbroker.client.producer import NewMessage, Producer, SentSet
    from logbroker.client.stream import MessageStream

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
    "audited_producer": ("AuditedProducer",),
    "connector": ("ConsumerConnector",),
    "errors": (
        *("BrokersUnavailable", "ClientClosed", "ClientError"),
        *("FetchFailed", "SendFailed", "StreamsExist"),
    ),
    "message": ("Message",),
    "producer": ("NewMessage", "Producer", "SentSet"),
    "stream": ("MessageStream",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # mypy would accept any name of a module with this function

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
