"""Changes of the users in ZooKeeper; any broker may request them."""

from collections.abc import Callable

from kazoo.exceptions import BadVersionError

from logbroker.errors import InvalidRequest, RegistryUnavailable
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.session import (
    REQUEST_S,
    Deadline,
    RequestTooLarge,
    ZooKeeperSession,
    get,
)
from logbroker.security.users import Users, format_users, parse_users


class UserStore:
    """The node `/logbroker/users`, which holds all users of the cluster in one document.

    `check_session` raises RegistryUnavailable unless the session belongs to the broker's cluster.
    """

    def __init__(self, session: ZooKeeperSession, check_session: Callable[[], None]) -> None:
        self._session = session
        self._check_session = check_session

    def change(self, change: Callable[[Users], Users]) -> None:
        """See `Registry.change_users`."""
        deadline = Deadline.after(REQUEST_S)
        while deadline.remaining_s > 0:
            self._check_session()
            content, stat = self._session.request(get(paths.USERS), deadline)
            try:
                before = parse_users(content)
            except ValueError as error:
                raise RegistryUnavailable(f"{paths.USERS} is malformed: {error}") from None
            after = change(before)
            if after == before:
                return
            transaction = self._session.transaction()
            transaction.set_data(paths.USERS, format_users(after), stat.version)
            try:
                self._session.commit_once(transaction, deadline)
            except BadVersionError:
                continue
            except RequestTooLarge as error:
                raise InvalidRequest(f"too many users: {error}") from None
            return
        raise RegistryUnavailable("too many concurrent changes of the users")
