"""The text of mails: notices of an account, confirmations of addresses, and tests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.domain.account_notices import AccountNotice, NoticeType
from app.domain.windows import parse_time

NAME_CHARS_MAX: Final = 60
"""Of the name of a webhook in a subject."""

_SUBJECTS: Final[Mapping[NoticeType, str]] = {
    NoticeType.WEBHOOK_FAILING: "Webhook {name} is failing",
    NoticeType.WEBHOOK_RECOVERED: "Webhook {name} has recovered",
    NoticeType.WEBHOOK_DISABLED: "Webhook {name} was disabled",
    NoticeType.SECRET_EXPIRING: "The previous secret of webhook {name} expires soon",
    NoticeType.REPLAY_COMPLETED: "A replay of webhook {name} is completed",
    NoticeType.REPLAY_FAILED: "A replay of webhook {name} has failed",
    NoticeType.REPLAY_CANCELLED: "A replay of webhook {name} was cancelled",
}

_MEANINGS: Final[Mapping[NoticeType, str]] = {
    NoticeType.WEBHOOK_FAILING: (
        "Its receiver has been failing for at least a minute. Events are kept in the log."
    ),
    NoticeType.WEBHOOK_RECOVERED: "Its receiver accepts events again.",
    NoticeType.WEBHOOK_DISABLED: "No more events are sent to it until it is enabled again.",
    NoticeType.SECRET_EXPIRING: (
        "After that time only the new secret signs: configure the receiver to verify with it."
    ),
    NoticeType.REPLAY_COMPLETED: "The replay reached the end of its window.",
    NoticeType.REPLAY_FAILED: "The replay could not continue.",
    NoticeType.REPLAY_CANCELLED: "Events that it had not sent yet are not sent by it.",
}

_LABELS: Final[Mapping[str, str]] = {
    "accountId": "Account",
    "webhookId": "Webhook id",
    "failingSince": "Failing since",
    "expiresAt": "Expires at",
    "replayId": "Replay",
    "from": "From",
    "to": "To",
    "state": "State",
    "result": "Result",
    "counts": "Events",
    "error": "Error",
    "reason": "Reason",
}


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail to one address. `id` is unique among mails, and `at_ms` is its date."""

    id: str
    address: str
    subject: str
    text: str
    at_ms: int


def notice_mail(notice: AccountNotice, address: str) -> Mail:
    """The mail of a notice, the same for all attempts: the facts, then the JSON of the notice."""
    document = json.loads(notice.body)
    notice_type = NoticeType(document["type"])
    name = _one_line(notice.webhook_name) or document["data"]["webhookId"]
    subject = _SUBJECTS[notice_type].format(name=name)
    facts = [("Time", document["timestamp"]), *_facts(document["data"])]
    paragraphs = [
        f"{subject}.",
        _MEANINGS[notice_type],
        _table(facts),
        _footer(notice.endpoint.account_id, notice.endpoint.id),
        json.dumps(document, indent=2, ensure_ascii=False),
    ]
    at_ms = parse_time(document["timestamp"])
    return Mail(notice.id, address, subject, _text(paragraphs), at_ms)


def confirmation_mail(
    mail_id: str, address: str, account_id: str, endpoint_id: str, code: str, page: str, at_ms: int
) -> Mail:
    """The mail with the code that confirms an address; `page` of the console takes it, if any.

    It has no text that the caller chose: it may be sent to a person who does not expect it.
    """
    steps = [
        f"rewind notice-endpoints confirm {endpoint_id} {code}",
        f'POST /notice-endpoints/{endpoint_id}/confirm with {{"code": "{code}"}}',
    ]
    paragraphs = [
        "A user of Rewind asked that notices about webhooks are sent to this address.",
        f"To agree, enter this code within a day: {code}",
        "\n".join([f"Console: {page}", *steps] if page else steps),
        "If you do not know of this, ignore the mail: nothing else is sent to you.",
        f"Account: {account_id}",
    ]
    return Mail(mail_id, address, "Confirm this address", _text(paragraphs), at_ms)


def test_mail(mail_id: str, address: str, account_id: str, endpoint_id: str, at_ms: int) -> Mail:
    """A mail that says that mail arrives."""
    paragraphs = [
        "This is a test: notices about your webhooks and replays arrive at this address.",
        _footer(account_id, endpoint_id),
    ]
    return Mail(mail_id, address, "Test of a notice endpoint", _text(paragraphs), at_ms)


def _facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The members of a notice that are not null, in its order; counts on one line."""
    return [
        (_LABELS.get(name, name), _fact(value)) for name, value in data.items() if value is not None
    ]


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return _one_line(str(value), None)


def _table(rows: list[tuple[str, str]]) -> str:
    width = max(len(label) for label, _ in rows) + 1
    return "\n".join(f"{label + ':':<{width}} {value}" for label, value in rows)


def _footer(account_id: str, endpoint_id: str) -> str:
    return (
        f"Sent by Rewind because notice endpoint {endpoint_id} of account {account_id} has this "
        "address. Its owner can disable or delete the endpoint."
    )


def _text(paragraphs: list[str]) -> str:
    return "\n\n".join(paragraphs) + "\n"


def _one_line(text: str, chars_max: int | None = NAME_CHARS_MAX) -> str:
    """`text` without line breaks and other control characters, shortened."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(printable.split())
    return line if chars_max is None or len(line) <= chars_max else f"{line[: chars_max - 3]}..."
