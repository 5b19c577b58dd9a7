"""The audit log: a line for every requested change, done or refused."""

import logging
from typing import Final

LOGGER: Final = logging.getLogger("rewind.audit")

_TARGET_CHARACTERS_MAX: Final = 200
"""Our longest has up to 110; a client may send one as long as a request's head."""


def record_change(
    action: str,
    target: str | None,
    *,
    key_id: str | None = None,
    account_id: str | None = None,
    status: int | None = None,
    client: str | None = None,
    **details: object,
) -> None:
    """Write who requested which change of what, and the HTTP status of the response.

    `action` is the operation's id in the OpenAPI document. Bodies, queries and headers are omitted:
    they may hold secrets.
    """
    LOGGER.info(
        "change",
        extra={
            "key_id": key_id,
            "account_id": account_id,
            "action": action,
            "target": target and target[:_TARGET_CHARACTERS_MAX],
            "status": status,
            "client": client,
            **details,
        },
    )
