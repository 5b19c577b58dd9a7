"""The message that a page shows after a form was submitted, encoded in its query string. Pure.

A form redirects to `?did=pause&count=3&refused=1`. The query selects among fixed texts and their
numbers, so that a forged link cannot inject text of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from app.console.formats import count

_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """The text for one item, and the text for another number of items, with `{}` for it."""

    one: str
    many: str
    is_bad_news: bool = False


@dataclass(frozen=True, slots=True)
class FlashMessage:
    """A message. It is bad news when something was rejected."""

    text: str
    is_bad_news: bool


TEMPLATES: Final[Mapping[str, MessageTemplate]] = {
    "pause": MessageTemplate("Job paused.", "{} jobs paused."),
    "resume": MessageTemplate("Job resumed.", "{} jobs resumed."),
    "cancel": MessageTemplate("Job cancelled.", "{} jobs cancelled."),
    "retry": MessageTemplate(
        "Retry queued: it sends what was not delivered.", "{} retries queued."
    ),
    "resend": MessageTemplate("Resend queued.", "{} resends queued."),
    "no-deliveries": MessageTemplate(
        "No deliveries selected.", "No deliveries selected.", is_bad_news=True
    ),
    "start": MessageTemplate("Replay queued.", "{} replays queued."),
    "none-selected": MessageTemplate(
        "No jobs selected. Select jobs, or choose all that match.",
        "No jobs selected. Select jobs, or choose all that match.",
        is_bad_news=True,
    ),
    "state-changed": MessageTemplate(
        "The state of the job has changed; nothing was done.",
        "The state of {} jobs has changed; nothing was done.",
        is_bad_news=True,
    ),
    "retry-busy": MessageTemplate(
        "Retry not queued: this webhook has another active job.",
        "Retries not queued: {} webhooks have another active job.",
        is_bad_news=True,
    ),
    "resume-busy": MessageTemplate(
        "Not resumed: this webhook has another active job.",
        "Not resumed: {} webhooks have another active job.",
        is_bad_news=True,
    ),
    "webhook-enable": MessageTemplate(
        "Receiver verified: the webhook is ENABLED.", "{} webhooks are ENABLED."
    ),
    "webhook-disable": MessageTemplate(
        "Webhook disabled. Its events are still logged and can be replayed.",
        "{} webhooks disabled.",
    ),
    "webhook-change": MessageTemplate("Webhook updated.", "{} webhooks updated."),
    "webhook-rotated": MessageTemplate(
        "Secret not rotated: this form was submitted before, and its secret has been replaced "
        "since.",
        "Secrets not rotated: {} have been replaced since.",
        is_bad_news=True,
    ),
    "rule-save": MessageTemplate(
        "Rule saved. It takes effect within two seconds.", "{} rules saved."
    ),
    "rule-delete": MessageTemplate(
        "Rule deleted. Events that it has matched are still delivered.", "{} rules deleted."
    ),
    "webhook-delete": MessageTemplate("Webhook and secret deleted.", "{} webhooks deleted."),
    "endpoint-enable": MessageTemplate(
        "Receiver verified: the endpoint is ENABLED.", "{} endpoints are ENABLED."
    ),
    "address-code": MessageTemplate(
        "A mail with a code was sent to the address.", "{} mails with a code were sent."
    ),
    "address-confirm": MessageTemplate(
        "Address confirmed: the endpoint is ENABLED.", "{} addresses are confirmed."
    ),
    "endpoint-disable": MessageTemplate(
        "Endpoint disabled; pending notices deleted.", "{} endpoints disabled."
    ),
    "endpoint-change": MessageTemplate("Endpoint updated.", "{} endpoints updated."),
    "endpoint-delete": MessageTemplate("Endpoint and secret deleted.", "{} endpoints deleted."),
}
"""Messages by code."""

_REJECTED: Final = MessageTemplate(
    "1 skipped: its state has changed.", "{} skipped: their state has changed."
)


def flash_message(query: Mapping[str, str]) -> FlashMessage | None:
    """Return the message in the query of a page; None if it has none or an unknown one."""
    template = TEMPLATES.get(query.get("did", ""))
    if template is None:
        return None
    done, rejected = _number(query.get("count"), 1), _number(query.get("refused"), 0)
    sentences = [_sentence(template, done)]
    if rejected:
        sentences.append(_sentence(_REJECTED, rejected))
    return FlashMessage(" ".join(sentences), template.is_bad_news or bool(rejected))


def flash_query(code: str, done: int = 1, rejected: int = 0) -> str:
    """Return the query string that `flash_message` parses."""
    assert code in TEMPLATES, f"no message for {code}"
    fields = {"did": code} | ({"count": done} if done != 1 else {})
    return urlencode(fields | ({"refused": rejected} if rejected else {}))


def _sentence(template: MessageTemplate, number: int) -> str:
    return template.one if number == 1 else template.many.format(count(number))


def _number(text: str | None, default: int) -> int:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number and text is not None else default
