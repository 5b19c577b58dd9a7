"""The 2011 paper's clients: a producer of message sets, and consumers that share by ZooKeeper."""

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
