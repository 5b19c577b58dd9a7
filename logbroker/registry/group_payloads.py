"""The encoding of a consumer group's membership and offsets in files and znodes.

Source for the plain offset: the paper, section 3.2 (the offset registry).
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from logbroker.groups.stored import (
    NO_LEADER_EPOCH,
    CommittedOffset,
    StoredMember,
    StoredMembership,
)

VERSION: Final = 1
OFFSET_MAX: Final = 2**63 - 1
OFFSET_MIN: Final = -(2**63)


def format_offset(committed: CommittedOffset) -> str:
    """Encode an offset: its decimal digits, then a space and JSON if it has other fields.

    A leader epoch of 0 is that of every new log, so it is omitted and parsed as none.
    """
    more: dict[str, int | str] = {}
    if committed.leader_epoch > 0:
        more["leader_epoch"] = committed.leader_epoch
    if committed.metadata:
        more["metadata"] = committed.metadata
    return f"{committed.offset} {json.dumps(more)}" if more else str(committed.offset)


def parse_offset(text: str) -> CommittedOffset:
    """Decode an offset, with or without further fields; clients may commit negative ones.

    Raises:
        ValueError: the text does not start with an offset, or the JSON is malformed.
    """
    number, _, more = text.partition(" ")
    digits = number.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit()
    if not is_number or not OFFSET_MIN <= int(number) <= OFFSET_MAX:
        raise ValueError(f"{text!r} does not start with an offset")
    fields = json.loads(more) if more else {}
    try:
        epoch = int(fields.get("leader_epoch", NO_LEADER_EPOCH))
        return CommittedOffset(int(number), epoch, str(fields.get("metadata", "")))
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{text!r} has malformed fields after its offset: {error}") from None


def membership_fields(membership: StoredMembership) -> dict[str, Any]:
    """Return the JSON object of a membership; bytes are in base64."""
    return {
        "version": VERSION,
        "generation": membership.generation,
        "protocol_type": membership.protocol_type,
        "protocol": membership.protocol,
        "leader": membership.leader,
        "members": [_member_fields(member) for member in membership.members],
    }


def parse_membership(fields: Mapping[str, Any]) -> StoredMembership:
    """Decode the JSON object of a membership.

    Raises:
        ValueError: a field is missing or has the wrong type, or the version is unknown.
    """
    try:
        if fields["version"] != VERSION:
            raise ValueError(f"unsupported version {fields['version']!r}; allowed: {VERSION}")
        return StoredMembership(
            generation=int(fields["generation"]),
            protocol_type=str(fields["protocol_type"]),
            protocol=_text_or_none(fields["protocol"]),
            leader=_text_or_none(fields["leader"]),
            members=tuple(_member(each) for each in fields["members"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or has the wrong type: {error}") from None


def _member_fields(member: StoredMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [[name, _base64(body)] for name, body in member.protocols],
        "assignment": _base64(member.assignment),
    }


def _member(fields: Mapping[str, Any]) -> StoredMember:
    return StoredMember(
        member_id=str(fields["member_id"]),
        instance_id=_text_or_none(fields["instance_id"]),
        client_id=str(fields["client_id"]),
        client_host=str(fields["client_host"]),
        session_timeout_ms=int(fields["session_timeout_ms"]),
        rebalance_timeout_ms=int(fields["rebalance_timeout_ms"]),
        protocols=tuple(
            (str(name), base64.b64decode(body, validate=True)) for name, body in fields["protocols"]
        ),
        assignment=base64.b64decode(fields["assignment"], validate=True),
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
