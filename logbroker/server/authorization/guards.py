"""Guards: what a request needs permission for, and the response for what is forbidden.

A guard removes the forbidden parts from a request and returns how to add their errors to the
response of the rest, or it answers the request itself. Produce and Fetch check their topics
themselves.

Source: Apache Kafka, "Authorization and ACLs", table of operations and resources; `KafkaApis`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from logbroker.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from logbroker.security.acl import AclOperation, AclResourceType
from logbroker.server.authorization.access import Access, Client, refusal_of
from logbroker.wire.error_codes import ERROR_CODES, code_and_message

Item = TypeVar("Item")

TOPIC_CODE: Final = ERROR_CODES[TopicAuthorizationFailed]
GROUP_CODE: Final = ERROR_CODES[GroupAuthorizationFailed]
CLUSTER_CODE: Final = ERROR_CODES[ClusterAuthorizationFailed]
TRANSACTIONAL_ID_CODE: Final = ERROR_CODES[TransactionalIdAuthorizationFailed]

Finish = Callable[[Any], Any]
"""Adds to the response of the allowed part of a request; returns the whole response."""


class Forbidden(NamedTuple):
    """The response to a request of which no part is allowed."""

    message: Any


Verdict = Finish | Forbidden | None
"""The outcome of a guard: `Forbidden` is the response; otherwise the handler answers, and `Finish`
completes its response."""

RequestGuard = Callable[[Access, Client, Any], Verdict]


def split(
    items: Iterable[Item], is_allowed: Callable[[Item], bool]
) -> tuple[list[Item], list[Item]]:
    """Return the allowed and the forbidden items."""
    allowed: list[Item] = []
    forbidden: list[Item] = []
    for item in items:
        (allowed if is_allowed(item) else forbidden).append(item)
    return allowed, forbidden


def remove_forbidden_topics(
    access: Access, client: Client, operation: AclOperation, holder: Any, name_field: str = "name"
) -> list[Any]:
    """Keep the topics of `holder` with which `operation` is allowed; returns the others."""
    holder.topics, forbidden = split(
        holder.topics,
        lambda each: access.allows_topic(client, operation, getattr(each, name_field)),
    )
    return forbidden


def add_results(field: str, results: list[Any]) -> Finish | None:
    """Return how to append `results` to the list `field` of the response."""

    def finish(message: Any) -> Any:
        getattr(message, field).extend(results)
        return message

    return finish if results else None


def topic_refusal(client: Client, operation: AclOperation, name: str) -> tuple[int, str | None]:
    """Return the error code and message of a forbidden operation with a topic."""
    return code_and_message(refusal_of(client, operation, AclResourceType.TOPIC, name))
