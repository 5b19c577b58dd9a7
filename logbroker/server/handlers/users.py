"""DescribeUserScramCredentials and AlterUserScramCredentials: the users of SASL (KIP-554)."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from logbroker.errors import (
    DuplicateResource,
    InvalidRequest,
    RequestRefused,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from logbroker.registry.registry import Registry
from logbroker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    USER_NAME_CHARS_MAX,
    ScramMechanism,
    derive_credential,
)
from logbroker.security.users import Users
from logbroker.server.connection import Connection
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.wire.error_codes import code_and_message

_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult

Change = Callable[[Users], Users]

CHANGES_MAX: Final = 1_000
"""Deletions and upsertions of one request."""


class UserHandlers:
    """Reads and changes the users of the cluster."""

    def __init__(
        self, partitions: Partitions, registry: Registry, registry_thread: RegistryThread
    ) -> None:
        self._partitions = partitions
        self._registry = registry
        self._registry_thread = registry_thread

    def describe(
        self, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Return the mechanisms and iterations of the named users, of all if none is named."""
        users = self._partitions.view.users
        named = Counter(each.name for each in request.users or ())
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            results=[_describe(name, users, named[name]) for name in named or users],
        )

    def alter(
        self,
        request: AlterUserScramCredentialsRequest,
        connection: Connection,
        respond: Callable[[AlterUserScramCredentialsResponse], None],
    ) -> None:
        """Apply the changes of each user, all or none of them."""
        outcomes: dict[str, RequestRefused | None] = {}
        changes = _parse(request, self._partitions.view.users, outcomes)

        def apply(users: Users) -> Users:
            for change in changes:
                users = change(users)
            return users

        def store() -> None:
            if changes:
                self._registry.change_users(apply)

        def stored(refusal: RequestRefused | None) -> None:
            respond(_altered({name: each or refusal for name, each in outcomes.items()}))

        self._registry_thread.submit(connection, store, stored)


def refuse_alter(
    request: AlterUserScramCredentialsRequest, refusal: RequestRefused
) -> AlterUserScramCredentialsResponse:
    """Return the response that refuses every user of a request."""
    return _altered(dict.fromkeys(_names(request), refusal))


def _altered(outcomes: dict[str, RequestRefused | None]) -> AlterUserScramCredentialsResponse:
    results = []
    for name, outcome in outcomes.items():
        code, reason = code_and_message(outcome)
        results.append(_Altered(user=name, error_code=code, error_message=reason))
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _describe(name: str, users: Users, times: int) -> _Described:
    credentials = users.credentials(name)
    refusal: RequestRefused | None = None
    if times > 1:
        refusal = DuplicateResource(f"user {name!r} is named twice")
    elif not credentials:
        refusal = ResourceNotFound(f"user {name!r} has no SCRAM credentials")
    code, reason = code_and_message(refusal)
    infos = [
        _Described.CredentialInfo(mechanism=mechanism.value, iterations=credential.iterations)
        for mechanism, credential in credentials.items()
        if refusal is None
    ]
    return _Described(user=name, error_code=code, error_message=reason, credential_infos=infos)


def _names(request: Any) -> Iterable[str]:
    return dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))


def _parse(request: Any, users: Users, outcomes: dict[str, RequestRefused | None]) -> list[Change]:
    """Return the changes of valid users; `outcomes` gets a refusal for each of the others."""
    changes: dict[str, list[Change]] = {name: [] for name in _names(request)}
    outcomes.update(dict.fromkeys(changes))
    seen: set[tuple[str, int]] = set()
    is_too_large = len(request.deletions) + len(request.upsertions) > CHANGES_MAX
    for each in (*request.deletions, *request.upsertions):
        key = each.name, each.mechanism
        try:
            if is_too_large:
                raise InvalidRequest(f"more than {CHANGES_MAX} changes")
            if key in seen:
                raise DuplicateResource(f"user {each.name!r} has two changes of one mechanism")
            seen.add(key)
            changes[each.name].append(_change(each, users))
        except RequestRefused as refusal:
            outcomes[each.name] = outcomes[each.name] or refusal
    return [one for name, many in changes.items() if outcomes[name] is None for one in many]


def _change(each: Any, users: Users) -> Change:
    mechanism = _mechanism(each.mechanism)
    name: str = each.name
    if not hasattr(each, "iterations"):
        if mechanism not in users.credentials(name):
            raise ResourceNotFound(f"user {name!r} has no credential of {mechanism.sasl_name}")
        return lambda before: before.without_credential(name, mechanism)
    if not 0 < len(name) <= USER_NAME_CHARS_MAX:
        raise UnacceptableCredential(
            f"the user name has {len(name)} characters; allowed is 1 to {USER_NAME_CHARS_MAX}"
        )
    if not ITERATIONS_MIN <= each.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"iterations is {each.iterations}; allowed is {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    salt, salted = bytes(each.salt), bytes(each.salted_password)
    if not 0 < len(salt) <= SALT_BYTES_MAX or len(salted) != mechanism.digest_bytes:
        raise UnacceptableCredential("the salt or the salted password has the wrong size")
    credential = derive_credential(mechanism, salted, salt, each.iterations)
    return lambda before: before.with_credential(name, mechanism, credential)


def _mechanism(code: int) -> ScramMechanism:
    try:
        return ScramMechanism(code)
    except ValueError:
        raise UnsupportedSaslMechanism(f"unknown SCRAM mechanism {code}") from None
