"""Verification of webhooks over the API, with a real receiver on loopback."""

import asyncio
from typing import Any

import pytest
from httpx import AsyncClient

from app.domain.model import Webhook, WebhookStatus
from app.services import verification
from app.services.verification import VERIFICATIONS_PER_ACCOUNT_MAX
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio


async def registered(client: AsyncClient, url: str, **members: Any) -> dict[str, Any]:
    answer = await client.post("/webhooks", json={"url": url} | members)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_a_receiver_that_accepts_the_ping_is_enabled_at_once(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    webhook = await registered(developers_client, receiver.url)
    assert webhook["status"] == "ENABLED"
    assert webhook["statusReason"] is None
    assert webhook["validatedAt"] >= webhook["createdAt"]
    (ping,) = receiver.webhooks
    assert ping.is_ping


@pytest.mark.parametrize("validation", ["ping", "crc"])
async def test_ping_and_crc_verify_a_receiver_that_knows_the_secret(
    developers_client: AsyncClient, receiver: ReceiverThread, validation: str
) -> None:
    secret = new_secret()
    receiver.expect(secret)
    webhook = await registered(
        developers_client, receiver.url, secret=secret, validation=validation
    )
    assert (webhook["status"], webhook["validation"]) == ("ENABLED", validation)
    assert webhook["secret"] == secret
    assert receiver.problems == []


async def test_a_failed_verification_leaves_the_webhook_pending_until_enabled(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    receiver.answer(503)
    webhook = await registered(developers_client, receiver.url)
    assert webhook["status"] == "PENDING"
    assert "503" in webhook["statusReason"]

    path = f"/webhooks/{webhook['id']}"
    receiver.answer(404)
    refused = await developers_client.post(f"{path}/enable")
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:rewind:problem:not-validated"
    assert "404" in refused.json()["detail"]
    assert "404" in (await developers_client.get(path)).json()["statusReason"]

    receiver.answer(204)
    enabled = (await developers_client.post(f"{path}/enable")).json()
    assert (enabled["status"], enabled["statusReason"]) == ("ENABLED", None)


async def test_verifications_per_minute_are_limited(
    developers_client: AsyncClient,
    others_client: AsyncClient,
    client: AsyncClient,
    receiver: ReceiverThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "VERIFICATIONS_PER_MINUTE_MAX", 3)
    webhook = await registered(developers_client, receiver.url)
    path = f"/webhooks/{webhook['id']}"
    answers = [
        await developers_client.post(f"{path}/enable"),
        await developers_client.patch(path, json={"url": f"{receiver.url}/2"}),
        await developers_client.patch(path, json={"url": f"{receiver.url}/3"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].json()["type"] == "urn:rewind:problem:rate-limited"
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    found = (await developers_client.get(path)).json()
    assert (found["url"], found["status"]) == (f"{receiver.url}/2", "ENABLED")
    assert len(receiver.webhooks) == 3

    await registered(others_client, receiver.url)
    assert (await client.post(f"{path}/enable")).status_code == 200


async def test_a_receiver_that_is_down_keeps_the_webhook_as_it_is(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    webhook = await registered(developers_client, receiver.url)
    receiver.go_down()
    answer = await developers_client.post(f"/webhooks/{webhook['id']}/enable")
    assert answer.status_code == 422
    found = (await developers_client.get(f"/webhooks/{webhook['id']}")).json()
    assert (found["status"], found["statusReason"]) == ("ENABLED", None)


async def test_a_new_url_is_verified_again(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    webhook = await registered(developers_client, receiver.url)
    path = f"/webhooks/{webhook['id']}"
    receiver.answer(500)
    moved = await developers_client.patch(path, json={"url": receiver.url + "/v2"})
    assert moved.status_code == 200
    assert moved.json()["status"] == "PENDING"
    assert "500" in moved.json()["statusReason"]

    receiver.answer(200)
    again = await developers_client.patch(path, json={"url": receiver.url + "/v3"})
    assert again.json()["status"] == "ENABLED"


async def test_a_new_description_needs_no_verification(
    developers_client: AsyncClient, webhook: Webhook, receiver: ReceiverThread
) -> None:
    url = {"url": webhook.url}
    for change in ({"description": "new"}, url, url | {"description": "newer"}):
        answer = await developers_client.patch(f"/webhooks/{webhook.id}", json=change)
        assert answer.json()["status"] == "ENABLED"
    assert receiver.webhooks == []


async def test_a_webhook_is_disabled_with_its_reason(
    developers_client: AsyncClient, webhook: Webhook
) -> None:
    path = f"/webhooks/{webhook.id}/disable"
    disabled = (await developers_client.post(path, json={"reason": "we move"})).json()
    assert (disabled["status"], disabled["statusReason"]) == ("DISABLED", "we move")
    bodies: list[dict[str, Any]] = [{}, {"json": {}}]
    for body in bodies:
        answer = await developers_client.post(path, **body)
        assert answer.json()["statusReason"] == "disabled by its owner"


async def test_a_rotated_secret_is_shown_once(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    path = f"/webhooks/{webhook.id}"
    answer = await developers_client.post(f"{path}/secret/rotate")
    assert answer.headers["cache-control"] == "no-store"
    rotated = answer.json()
    assert rotated["secret"] not in (webhook.secret, "")
    assert rotated["previousSecretExpiresAt"] > rotated["createdAt"]
    assert "secret" not in (await developers_client.get(path)).json()
    stored = store.webhook(webhook.id)
    assert (stored.secret, stored.previous_secret) == (rotated["secret"], webhook.secret)

    given = {"secret": new_secret(), "gracePeriodSeconds": 0}
    answer = await developers_client.post(f"{path}/secret/rotate", json=given)
    assert answer.json()["secret"] == given["secret"]
    assert answer.json()["previousSecretExpiresAt"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"secret": "hunter2"},
        {"secret": "whsec_hunter2"},
        {"secret": new_secret().removeprefix("whsec_")},
        {"gracePeriodSeconds": -1},
        {"gracePeriodSeconds": 604_801},
        {"gracePeriodSeconds": "1"},
    ],
)
async def test_an_invalid_rotation_changes_nothing_and_repeats_no_secret(
    developers_client: AsyncClient, store: Store, webhook: Webhook, body: dict[str, Any]
) -> None:
    answer = await developers_client.post(f"/webhooks/{webhook.id}/secret/rotate", json=body)
    assert answer.status_code == 400
    assert answer.json()["field"] == next(iter(body))
    assert "hunter2" not in answer.text
    assert store.webhook(webhook.id).secret == webhook.secret


async def test_an_invalid_secret_is_rejected_with_what_is_allowed(
    developers_client: AsyncClient, webhook: Webhook
) -> None:
    body = {"secret": "whsec_c2hvcnQ="}
    answer = await developers_client.post(f"/webhooks/{webhook.id}/secret/rotate", json=body)
    assert answer.json()["allowed"] == "whsec_ and 24 to 64 bytes in base64"
    assert "the secret has 5 bytes" in answer.json()["detail"]


async def test_event_types_at_registration_are_the_rule_default(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    webhook = await registered(developers_client, receiver.url, eventTypes=["follow.*", "dm"])
    rule = (await developers_client.get(f"/webhooks/{webhook['id']}/rules/default")).json()
    assert rule == {
        "webhookId": webhook["id"],
        "name": "default",
        "eventTypes": ["follow.*", "dm"],
        "where": {},
        "coveredByGrant": False,
    }


async def test_an_operator_registers_for_a_developer(
    client: AsyncClient,
    developers_client: AsyncClient,
    developer: Issued,
    other_developer: Issued,
    receiver: ReceiverThread,
) -> None:
    account_id = developer[0].account.id
    webhook = await registered(client, receiver.url, accountId=account_id)
    assert webhook["accountId"] == account_id
    assert (await developers_client.get(f"/webhooks/{webhook['id']}")).status_code == 200

    for path in ("acc_unknown", other_developer[0].account.id):
        answer = await developers_client.post(
            "/webhooks", json={"url": receiver.url, "accountId": path}
        )
        assert answer.status_code == 403
    own = await registered(developers_client, receiver.url, accountId=account_id)
    assert own["accountId"] == account_id


async def test_a_webhook_of_an_unknown_account_is_rejected(
    client: AsyncClient, receiver: ReceiverThread
) -> None:
    answer = await client.post("/webhooks", json={"url": receiver.url, "accountId": "acc_unknown"})
    assert answer.status_code == 404
    assert "acc_unknown" in answer.json()["detail"]
    assert receiver.webhooks == []


async def test_concurrent_verifications_of_a_developer_are_limited(
    developers_client: AsyncClient,
    others_client: AsyncClient,
    receiver: ReceiverThread,
    store: Store,
) -> None:
    receiver.answer(200, delay_s=2.0)
    body = {"url": receiver.url}
    answers = await asyncio.gather(
        *(
            developers_client.post("/webhooks", json=body)
            for _ in range(VERIFICATIONS_PER_ACCOUNT_MAX + 2)
        ),
        others_client.post("/webhooks", json=body),
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] * (VERIFICATIONS_PER_ACCOUNT_MAX + 1) + [429] * 2
    assert answers[-1].status_code == 201
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    # What was refused was not stored either.
    stored = store.webhooks(limit=100).items
    assert len(stored) == VERIFICATIONS_PER_ACCOUNT_MAX + 1
    assert {webhook.status for webhook in stored} == {WebhookStatus.ENABLED}
