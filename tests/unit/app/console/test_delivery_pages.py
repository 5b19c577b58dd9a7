"""The pages of deliveries, as far as they need no log."""

from dataclasses import replace

import pytest
from jinja2 import Environment

from app.console.delivery import PAYLOAD_CHARACTERS_MAX, shown_payload
from app.console.delivery_parts import delivery_parts, version_of
from app.console.formats import NOTHING
from app.console.rendering import environment
from app.domain.deliveries import (
    AttemptRecord,
    AttemptTrigger,
    DeliveryPlace,
    DeliveryReplay,
    DeliveryStatus,
    format_delivery_id,
)
from app.domain.model import Failure, Webhook
from app.log.deliveries import DeliveryDetail, DeliverySummary
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"

NINE_MS = 1_795_338_000_000
"""2026-11-22 09:00:00."""

FAILED = DeliverySummary(
    place=DeliveryPlace("here", 3, 1_000),
    webhook_id="wh_1",
    event_id="evt_1",
    event_type="order.paid",
    time_ms=NINE_MS,
    status=DeliveryStatus.FAILED,
    attempts=4,
    response_status=503,
    reason="HTTP 503 Service Unavailable",
    settled_ms=NINE_MS + 60_000,
    duration_ms=31.2,
)
PENDING = DeliverySummary(
    DeliveryPlace("here", 3, 1_001), "wh_1", HOSTILE, "", NINE_MS, DeliveryStatus.PENDING
)


@pytest.fixture
def templates() -> Environment:
    return environment(60.0)


def rendered(templates: Environment, macro: str, *arguments: object) -> HtmlPage:
    module = templates.get_template("_delivery_parts.html").module
    return HtmlPage(f"<html><main>{getattr(module, macro)(*arguments)}</main></html>")


def rows(page: HtmlPage) -> list[list[str]]:
    numbers = range(1, len(page.all(".//tbody/tr")) + 1)
    return [page.texts(f".//tbody/tr[{number}]/*") for number in numbers]


async def test_a_row_has_the_event_the_status_and_the_last_response(templates: Environment) -> None:
    deliveries = [FAILED, PENDING, replace(PENDING, status=None)]
    page = rendered(templates, "table", deliveries, version_of, frozenset(), False)
    times = ["2026-11-22 09:00:00", "2026-11-22 09:01:00"]
    failed, pending, unknown = rows(page)
    assert failed == [
        "evt_1 order.paid",
        "failed HTTP 503 Service Unavailable",
        "4",
        "503 31 ms",
        *times,
    ]
    assert pending == [f"{HOSTILE} no type", "pending", "0", NOTHING, times[0], NOTHING]
    assert unknown[1] == "unknown"
    assert page.all(".//script") == page.all(".//img") == []
    links = [link.get("href") for link in page.all(".//th/a")]
    assert links[0] == f"/console/deliveries/{format_delivery_id(FAILED.place)}"


async def test_attempts_show_what_the_receiver_answered_and_the_process_to_operators(
    templates: Environment,
) -> None:
    failed = AttemptRecord(1, NINE_MS + 250, 250.0, 503, "HTTP 503", f"\n{HOSTILE}", "machine:7")
    unanswered = AttemptRecord(2, NINE_MS + 1_500, 1_500.0, None, "timeout", None, "")
    succeeded = AttemptRecord(3, NINE_MS, None, 204, None, trigger=AttemptTrigger.RESEND)
    attempts = (failed, unanswered, succeeded)
    page = rendered(templates, "attempts", attempts, DeliveryStatus.SUCCEEDED, True)
    assert rows(page) == [
        ["1", "2026-11-22 09:00:00", "HTTP 503", "250 ms", "live", "machine:7", f"Show {HOSTILE}"],
        ["2", "2026-11-22 09:00:00", "timeout", "2 s", "live", NOTHING, NOTHING],
        ["3", "2026-11-22 09:00:00", "succeeded HTTP 204", NOTHING, "resend", NOTHING, NOTHING],
    ]
    for_owners = rendered(templates, "attempts", attempts, DeliveryStatus.SUCCEEDED, False)
    assert "machine:7" not in for_owners.main
    assert rendered(templates, "attempts", (), DeliveryStatus.PENDING, False).main == (
        "No attempts yet."
    )


async def test_an_update_has_the_cells_of_a_row_and_the_parts_of_the_page(
    templates: Environment,
) -> None:
    attempt = AttemptRecord(1, NINE_MS, 31.2, 503, "HTTP 503", HOSTILE, "machine:7")
    waiting = replace(PENDING, attempts=1, reason=HOSTILE, next_attempt_ms=NINE_MS + 1_000)
    replays = (
        DeliveryReplay("rpl_1", Failure(1_001, "evt_1", 2, 503, HOSTILE)),
        DeliveryReplay("rpl_2", delivered_by_ms=NINE_MS),
        DeliveryReplay("rpl_3", Failure(1_001, "evt_1", 1, 503, "no", 31, "busy", NINE_MS, "w:7")),
    )
    detail = DeliveryDetail(waiting, b"", (), (attempt,), replays=replays)
    parts = delivery_parts(templates, detail, is_operator=False)
    assert "Next attempt: " in parts["next"]
    assert parts["attempts"] == "1"
    assert parts["settled"] == NOTHING
    shown_replays = HtmlPage(f"<html>{parts['replays']}</html>")
    assert shown_replays.texts(".//li") == [
        f"rpl_1 failed: {HOSTILE}, after 2 attempts",
        "rpl_2 succeeded by 2026-11-22 09:00:00",
        (
            "rpl_3 failed: no, after 1 attempt, the last at 2026-11-22 09:00:00 (31 ms)"
            "Response body busy"
        ),
    ]
    for_operators = delivery_parts(templates, detail, is_operator=True)["replays"]
    assert "(31 ms, w:7)" in for_operators
    assert shown_replays.all(".//a")[0].get("href") == "/console/jobs/rpl_1"
    for name in ("status", "reason", "attempt-list", "replays"):
        assert "&lt;script&gt;" in parts[name]
        assert "<script>" not in parts[name]
    row = rendered(templates, "table", [waiting], version_of, {waiting.place}, True)
    (shown,) = row.all(".//tr[@data-live-id]")
    assert shown.get("data-live-id") == waiting.id
    assert shown.get("data-version") == version_of(waiting, is_resending=True)
    cells = [each.get("data-live") for each in row.all(".//td[@data-live]")]
    assert cells == ["status", "attempts", "response", "settled"]
    assert set(cells) < set(parts)
    assert "resend pending" in row.main
    assert "Next attempt: 2026-11-22 09:00:01." in row.main
    box = row.one(".//td/input")
    assert (box.get("name"), box.get("value")) == ("id", waiting.id)


async def test_a_payload_is_shown_as_text_or_as_bytes_up_to_a_limit() -> None:
    text = shown_payload("ü\u2028".encode())
    assert (text.text, text.is_text, text.is_cut, text.size) == ("ü\u2028", True, False, 5)
    long = shown_payload(b"x" * (PAYLOAD_CHARACTERS_MAX + 1))
    assert (len(long.text), long.is_cut) == (PAYLOAD_CHARACTERS_MAX, True)
    binary = shown_payload(b"\xff\x00")
    assert binary.text.startswith("00000000  ff 00")
    assert not binary.is_text
    assert not shown_payload(b"a page cannot show\0").is_text
    assert shown_payload(b"\xff" * 5_000).is_cut


async def test_an_invalid_filter_is_shown_with_its_errors(
    developers_client: ConsoleClient, webhook: Webhook
) -> None:
    path = f"/console/webhooks/{webhook.id}/deliveries"
    typed = {"status": "done", "eventId": "a b", "eventType": "x", "from": "soon", "to": ""}
    answer = await developers_client.get(path, **typed)
    assert answer.status_code == 400
    page = HtmlPage(answer.text)
    for name, words in (("eventId", "eventId"), ("from", "from")):
        assert page.field(name) == typed[name]
        assert words in page.error_of(name)
    assert "status" in page.main
    tabs = {link.text: link.get("href") for link in page.all(".//nav[@aria-label='Statuses']//a")}
    assert list(tabs) == ["All", "Pending", "Succeeded", "Failed", "Skipped"]
    assert tabs["Failed"] == f"{path}?status=failed&eventId=a+b&eventType=x&from=soon"
    window = {"from": "2026-11-22T09:00", "to": "2026-11-22T08:00:00Z"}
    reversed_window = await developers_client.get(path, **window)
    assert "a time before `to`" in HtmlPage(reversed_window.text).error_of("from")


async def test_webhooks_of_others_and_mistyped_deliveries_are_not_found(
    developers_client: ConsoleClient, others_webhook: Webhook
) -> None:
    wrong = f"{format_delivery_id(FAILED.place)[:-1]}!"
    paths = (
        f"/console/webhooks/{others_webhook.id}/deliveries",
        f"/console/deliveries/{wrong}",
        f"/console/deliveries/{wrong}/payload",
    )
    for path in paths:
        assert (await developers_client.get(path)).status_code == 404, path


async def test_the_page_of_a_webhook_links_to_its_deliveries(
    developers_client: ConsoleClient, webhook: Webhook
) -> None:
    page = await developers_client.page(f"/console/webhooks/{webhook.id}")
    (link,) = [each for each in page.all(".//main//a") if each.text == "Deliveries"]
    assert link.get("href") == f"/console/webhooks/{webhook.id}/deliveries"


async def test_a_resend_needs_the_right_key_a_form_and_a_selection(
    developers_client: ConsoleClient,
    readers_client: ConsoleClient,
    webhook: Webhook,
) -> None:
    path = f"/console/deliveries/{FAILED.id}/resend"
    assert (await readers_client.post(path)).status_code == 403
    without_token = await developers_client.http.post(path, data={"csrf": "x"})
    assert without_token.status_code == 403
    selected = f"/console/webhooks/{webhook.id}/deliveries/resend"
    assert (await readers_client.post(selected, {"id": FAILED.id})).status_code == 403
    too_many = await developers_client.post(selected, {"id": [FAILED.id] * 101})
    assert too_many.status_code == 400
    back = "status=failed&eventType=a.*&did=x&other=1"
    none = await developers_client.post(selected, {"back": back})
    location = f"/console/webhooks/{webhook.id}/deliveries?status=failed&eventType=a.%2A"
    assert none.headers["location"] == f"{location}&did=no-deliveries"
