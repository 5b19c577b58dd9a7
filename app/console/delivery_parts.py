"""The parts of a delivery that change until it is settled, as markup, for pages and updates."""

from typing import Final

from jinja2 import Environment
from markupsafe import Markup, escape

from app.console.formats import count, time_tag
from app.console.rendering import template_macro
from app.domain.deliveries import DeliveryStatus
from app.log.deliveries import DeliveryDetail, DeliverySummary

_TEMPLATE: Final = "_delivery_parts.html"


def version_of(delivery: DeliverySummary, *, is_resending: bool = False) -> str:
    """Return a text that differs when what a page shows of a delivery differs.

    It begins with "pending" while the delivery or a resend of it is pending.
    """
    status = f"{DeliveryStatus.PENDING}-resend" if is_resending else delivery.status or "unknown"
    following = "" if delivery.next_attempt_ms is None else f".{delivery.next_attempt_ms}"
    return f"{status}.{delivery.attempts}{following}"


def delivery_parts(
    environment: Environment, detail: DeliveryDetail, *, is_operator: bool
) -> dict[str, str]:
    """Return the markup of the parts by name: those of a row, and those of the delivery's page."""
    delivery, is_resending = detail.summary, detail.pending_resends > 0

    def part(name: str, *arguments: object) -> Markup:
        return template_macro(environment, _TEMPLATE, name)(*arguments)

    parts = {
        "status": part("status_cell", delivery, is_resending),
        "attempts": count(delivery.attempts),
        "response": part("response_cell", delivery),
        "settled": escape(time_tag(delivery.settled_ms)),
        "badge": part("status", delivery, is_resending),
        "reason": escape(delivery.reason or ""),
        "next": part("next_attempt", delivery.next_attempt_ms),
        "replays": part("replays", detail.replays, is_operator),
        "attempt-list": part("attempts", detail.attempts, delivery.status, is_operator),
    }
    # The script compares a part with the stripped innerHTML of the page.
    return {name: markup.strip() for name, markup in parts.items()}
