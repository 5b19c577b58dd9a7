"""Changes of documents in ZooKeeper that hold all of a kind; any broker may request them."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from kazoo.exceptions import BadVersionError

from logbroker.errors import InvalidRequest, RegistryUnavailable
from logbroker.registry.zookeeper.session import (
    REQUEST_S,
    Deadline,
    RequestTooLarge,
    ZooKeeperSession,
    get,
)

Content = TypeVar("Content")


class DocumentCodec(NamedTuple, Generic[Content]):
    """How a document is stored; `kind` names its content in messages.

    `parse` raises ValueError if the stored document is malformed.
    """

    kind: str
    parse: Callable[[bytes], Content]
    format: Callable[[Content], bytes]


class DocumentStore(Generic[Content]):
    """One node whose document is replaced by each change.

    `check_session` raises RegistryUnavailable unless the session belongs to the broker's cluster.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        check_session: Callable[[], None],
        path: str,
        codec: DocumentCodec[Content],
    ) -> None:
        self._session = session
        self._check_session = check_session
        self._path = path
        self._codec = codec

    def change(self, change: Callable[[Content], Content]) -> None:
        """Apply `change` to the document; it is called again after a conflict.

        Raises:
            RegistryUnavailable: the document was not changed, or it is not known whether.
            InvalidRequest: the document would be too large for ZooKeeper.
            RequestRefused: raised by `change`.
        """
        kind, path = self._codec.kind, self._path
        deadline = Deadline.after(REQUEST_S)
        while deadline.remaining_s > 0:
            self._check_session()
            content, stat = self._session.request(get(path), deadline)
            try:
                before = self._codec.parse(content)
            except ValueError as error:
                raise RegistryUnavailable(f"{path} is malformed: {error}") from None
            after = change(before)
            if after == before:
                return
            transaction: Any = self._session.transaction()
            transaction.set_data(path, self._codec.format(after), stat.version)
            try:
                self._session.commit_once(transaction, deadline)
            except BadVersionError:
                continue
            except RequestTooLarge as error:
                raise InvalidRequest(f"too many {kind}: {error}") from None
            return
        raise RegistryUnavailable(f"too many concurrent changes of the {kind}")
