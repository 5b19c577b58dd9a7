"""Changes of the access control lists in ZooKeeper; any broker may request them."""

from collections.abc import Callable

from kazoo.exceptions import BadVersionError

from logbroker.errors import InvalidRequest, RegistryUnavailable
from logbroker.registry.acl_payloads import check_acl_count, format_acls, parse_acls
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.session import (
    REQUEST_S,
    Deadline,
    RequestTooLarge,
    ZooKeeperSession,
    get,
)
from logbroker.security.acl import Acl


class AclStore:
    """The node `/logbroker/acls`, which holds all ACLs of the cluster in one document.

    `check_session` raises RegistryUnavailable unless the session belongs to the broker's cluster.
    """

    def __init__(self, session: ZooKeeperSession, check_session: Callable[[], None]) -> None:
        self._session = session
        self._check_session = check_session

    def change(self, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """See `Registry.change_acls`."""
        deadline = Deadline.after(REQUEST_S)
        while deadline.remaining_s > 0:
            self._check_session()
            content, stat = self._session.request(get(paths.ACLS), deadline)
            try:
                before = parse_acls(content).acls
            except ValueError as error:
                raise RegistryUnavailable(f"{paths.ACLS} is malformed: {error}") from None
            after = change(before)
            if after == before:
                return
            check_acl_count(len(after))
            transaction = self._session.transaction()
            transaction.set_data(paths.ACLS, format_acls(after), stat.version)
            try:
                self._session.commit_once(transaction, deadline)
            except BadVersionError:
                continue
            except RequestTooLarge as error:
                raise InvalidRequest(f"too many ACLs: {error}") from None
            return
        raise RegistryUnavailable("too many concurrent changes of the ACLs")
