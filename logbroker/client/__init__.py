"""The 2011 paper's clients: a producer of message sets, with an audit or without, and consumers."""

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
