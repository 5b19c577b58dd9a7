"""Payloads that GitHub and Stripe publish, from the API or the log to a delivery's page."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import httpx
import pytest

from app.domain.accounts import Scope
from app.domain.model import Webhook
from app.log.topics import DELIVERY_LOG
from tests.integration.test_deliveries import listed, until_settled
from tests.support.http.api_clients import client_at
from tests.support.http.browser import Chromium
from tests.support.http.html_page import HtmlPage
from tests.support.http.published_payloads import (
    PublishedPayload,
    compact_json,
    github_payloads,
    stripe_payloads,
)
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = [
    pytest.mark.long,
    # A download may take as long as a test.
    pytest.mark.timeout(1_200),
    pytest.mark.xdist_group("console"),
]

EVENTS_PER_REQUEST: Final = 100

LARGEST: Final = 20
"""The number of payloads that are also written to the log as they are."""

STRINGS: Final = (
    '{"html":"</pre></script><script>alert(1)</script><!--<b>&amp;&#0;"}',
    '{"separators":"\u2028\u2029\u0085\u00a0\ufeff","hidden":"\u200d\u202e\u2066\x7f"}',
    '{"emoji":"🎉👩\u200d👩\u200d👧🏳️\u200d🌈","pairs":"\\ud83c\\udf89"}',
    '{"escapes":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u2028\\u003c/script\\u003e"}',
)
"""Objects with characters that HTML, JavaScript or terminals treat specially."""

TEXTS: Final = (
    '{"lone surrogates":"\\ud83c \\udf89"}',
    '{"numbers":[1.0,1.10,1E2,-0.0,1e400,123456789012345678901234567890,0.1000000000000000055]}',
    '\r\n{\r\n\t"lines" : "of all kinds",\r\r\n"twice":1,"twice":2 }\n\n',
    "\ufeff{}",
    "null",
    "",
)
"""Texts that JSON libraries reject or would write differently."""


@pytest.fixture
def webhook(scene: ConsoleScene, receiver: ReceiverThread) -> Webhook:
    """A webhook whose receiver verifies signatures."""
    scene.key("payloads", Scope.DEVELOPER)
    webhook = scene.webhook_of("payloads", receiver)
    receiver.expect(webhook.secret)
    return webhook


@pytest.fixture
def operator(scene: ConsoleScene) -> Iterator[httpx.Client]:
    """A client of the API that is also signed in to the console."""
    key = scene.key()
    with client_at(scene.origin, key) as client:
        assert client.post("/console/sign-in", data={"key": key}).status_code == 303
        yield client


@pytest.mark.parametrize("examples", [github_payloads, stripe_payloads])
def test_published_payloads_are_delivered_and_shown_byte_for_byte(
    scene: ConsoleScene,
    operator: httpx.Client,
    webhook: Webhook,
    receiver: ReceiverThread,
    examples: Callable[[], list[PublishedPayload]],
) -> None:
    payloads = sorted(examples(), key=lambda each: len(each.body), reverse=True)
    assert len(payloads) > 100
    publish(operator, webhook, payloads)
    produce(scene, webhook, payloads[:LARGEST])
    found = shown_deliveries(operator, webhook, receiver, len(payloads) + LARGEST)
    assert_unchanged(found, payloads, payloads[:LARGEST])


def test_odd_characters_are_delivered_and_shown_byte_for_byte(
    scene: ConsoleScene,
    chromium: Chromium,
    operator: httpx.Client,
    webhook: Webhook,
    receiver: ReceiverThread,
) -> None:
    payloads = [PublishedPayload("odd", each.encode()) for each in (*STRINGS, *TEXTS)]
    published = payloads[: len(STRINGS)]
    publish(operator, webhook, published)
    produce(scene, webhook, payloads)
    found = shown_deliveries(operator, webhook, receiver, len(published) + len(payloads))
    assert_unchanged(found, published, payloads)
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, scene.key())
        for delivery in listed(operator, webhook):
            visitor.go(f"/console/deliveries/{delivery['id']}")
            shown = visitor.page.get_by_role("region", name="Text of the payload")
            assert (shown.text_content() or "").encode() == found[delivery["eventId"]]


def publish(operator: httpx.Client, webhook: Webhook, payloads: Sequence[PublishedPayload]) -> None:
    """Publish payloads, as they are, as the `data` of events with the ids `api-0`, `api-1`, ..."""
    events = [
        f'{{"id":"api-{number}","type":"{event_type}","webhookId":"{webhook.id}","data":'.encode()
        + body
        + b"}"
        for number, (event_type, body) in enumerate(payloads)
    ]
    for start in range(0, len(events), EVENTS_PER_REQUEST):
        part = events[start : start + EVENTS_PER_REQUEST]
        answer = operator.post(
            "/events",
            content=b"[" + b",".join(part) + b"]",
            headers={"content-type": "application/json"},
        )
        assert (answer.status_code, answer.json()) == (202, {"accepted": len(part)})


def produce(scene: ConsoleScene, webhook: Webhook, payloads: Sequence[PublishedPayload]) -> None:
    """Write payloads to the log, with the ids `log-0`, `log-1`, ..."""
    records: list[tuple[str | None, dict[str, Any], bytes | None]] = [
        (webhook.id, {"event-id": f"log-{number}", "event-type": event_type}, body)
        for number, (event_type, body) in enumerate(payloads)
    ]
    scene.produce(DELIVERY_LOG, records)


def shown_deliveries(
    operator: httpx.Client, webhook: Webhook, receiver: ReceiverThread, count: int
) -> dict[str, bytes]:
    """Wait for `count` deliveries; return the bodies by event id, the same wherever they are read.

    All are compared at the receiver. Those from the log are read in all ways, the others in one.
    """
    until(lambda: len(set(receiver.taken)) == count, f"{count} events")
    assert receiver.problems == []
    bodies = {each.event_id: each.body for each in receiver.webhooks}
    deliveries = until_settled(operator, webhook, count)
    assert {each["eventId"] for each in deliveries} == bodies.keys()
    ids = {each["eventId"]: each["id"] for each in deliveries}
    for number, event_id in enumerate(sorted(ids)):
        is_from_log = event_id.startswith("log-")
        for read in READS if is_from_log else [READS[number % len(READS)]]:
            assert read(operator, ids[event_id]) == bodies[event_id]
    return bodies


def payload_from_api(operator: httpx.Client, delivery_id: str) -> bytes:
    detail = operator.get(f"/deliveries/{delivery_id}").json()
    payload: bytes = detail["payload"].encode()
    assert detail["payloadBytes"] == len(payload)
    return payload


def downloaded_payload(operator: httpx.Client, delivery_id: str) -> bytes:
    return operator.get(f"/console/deliveries/{delivery_id}/payload").content


def payload_on_page(operator: httpx.Client, delivery_id: str) -> bytes:
    page = HtmlPage(operator.get(f"/console/deliveries/{delivery_id}").text)
    shown = page.one(".//pre[@id='payload-text']")
    assert len(shown) == 0, "the payload's markup is escaped"
    return (shown.text or "").removeprefix("\n").encode()


READS: Final = (payload_from_api, downloaded_payload, payload_on_page)
"""Ways to read the payload of a delivery: a request of each for all payloads took 50 s."""


def assert_unchanged(
    found: Mapping[str, bytes],
    published: Sequence[PublishedPayload],
    produced: Sequence[PublishedPayload],
) -> None:
    """Assert that bodies have the bytes that were produced, or published and compacted."""
    for number, (event_type, body) in enumerate(published):
        event = f'{{"id":"api-{number}","type":"{event_type}","time":"'.encode()
        assert found[f"api-{number}"].startswith(event)
        data = b',"data":' + compact_json(json.loads(body)) + b"}"
        assert found[f"api-{number}"].endswith(data)
    for number, (_, body) in enumerate(produced):
        assert found[f"log-{number}"] == body
