"""What a page says of what was just done: words of ours, chosen by codes in its address. Pure.

After a form was taken, its browser is sent on to `?did=pause&count=3&refused=1`. Whoever makes such
an address up chooses among these sentences and their numbers, and cannot bring words of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from app.console.formats import count

_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class Words:
    """How a deed is told: of one thing, and of another number of them, which stands for `{}`."""

    one: str
    many: str
    is_bad_news: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """What a page says of a deed; bad news when something was refused."""

    text: str
    is_bad_news: bool


WORDS: Final[Mapping[str, Words]] = {
    "pause": Words("The job is paused.", "{} jobs are paused."),
    "resume": Words("The job goes on.", "{} jobs go on."),
    "cancel": Words("The job is cancelled.", "{} jobs are cancelled."),
    "retry": Words("A job is queued that sends the failed events again.", "{} retries are queued."),
    "start": Words("The replay is queued.", "{} replays are queued."),
    "none-ticked": Words(
        "No job was ticked: tick some, or choose all that match.",
        "No job was ticked: tick some, or choose all that match.",
        is_bad_news=True,
    ),
    "moved-on": Words(
        "The job had moved on meanwhile, and was left as it is.",
        "{} jobs had moved on meanwhile, and were left as they are.",
        is_bad_news=True,
    ),
    "retry-busy": Words(
        "Nothing was queued: another job of this webhook is not over yet.",
        "Nothing was queued: other jobs of {} webhooks are not over yet.",
        is_bad_news=True,
    ),
    "webhook-enable": Words(
        "The receiver has proved to be yours: the webhook is ENABLED.", "{} webhooks are ENABLED."
    ),
    "webhook-disable": Words(
        "The webhook is DISABLED: nothing is sent to it. Its events are logged all the same.",
        "{} webhooks are DISABLED.",
    ),
    "webhook-change": Words("The webhook is changed.", "{} webhooks are changed."),
    "webhook-rotated": Words(
        "Nothing was rotated: this form had given the webhook a secret before, and that was "
        "replaced since.",
        "Nothing was rotated: {} secrets were replaced before.",
        is_bad_news=True,
    ),
    "webhook-delete": Words(
        "The webhook is deleted, and its secret with it.", "{} webhooks are deleted."
    ),
}
"""By code: each page adds its own here."""

_REFUSED: Final = Words(
    "One had moved on meanwhile, and was left as it is.",
    "{} had moved on meanwhile, and were left as they are.",
)


def notice_of(query: Mapping[str, str]) -> Notice | None:
    """What the query of a page says was done; None when it says nothing, or nothing known."""
    words = WORDS.get(query.get("did", ""))
    if words is None:
        return None
    done, refused = _number(query.get("count"), 1), _number(query.get("refused"), 0)
    sentences = [_sentence(words, done)]
    if refused:
        sentences.append(_sentence(_REFUSED, refused))
    return Notice(" ".join(sentences), words.is_bad_news or bool(refused))


def did(code: str, done: int = 1, refused: int = 0) -> str:
    """The query that `notice_of` reads."""
    assert code in WORDS, f"{code} has no words"
    fields = {"did": code} | ({"count": done} if done != 1 else {})
    return urlencode(fields | ({"refused": refused} if refused else {}))


def _sentence(words: Words, number: int) -> str:
    return words.one if number == 1 else words.many.format(count(number))


def _number(text: str | None, default: int) -> int:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number and text is not None else default
