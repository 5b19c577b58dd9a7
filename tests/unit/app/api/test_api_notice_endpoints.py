"""Endpoints for notices over the API, with a real receiver on loopback."""

import json
from typing import Any

import pytest
from httpx import AsyncClient

from app.api.application import openapi_document
from app.api.notice_events import NOTICES
from app.domain.account_notices import ENDPOINTS_PER_ACCOUNT_MAX, NewNoticeEndpoint, NoticeType
from app.domain.model import NewReplay, Webhook, Window
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

PATH = "/notice-endpoints"


async def registered(client: AsyncClient, url: str, **members: Any) -> dict[str, Any]:
    answer = await client.post(PATH, json={"url": url} | members)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"{PATH}/{document['id']}"
    assert answer.headers["cache-control"] == "no-store"
    return document


async def test_an_endpoint_that_accepts_the_signed_ping_is_enabled(
    developers_client: AsyncClient, developer: Issued, receiver: ReceiverThread
) -> None:
    secret = new_secret()
    receiver.expect(secret)
    types = ["webhook.disabled", "replay.failed"]
    endpoint = await registered(
        developers_client, receiver.url, secret=secret, description="on-call", eventTypes=types
    )
    (ping,) = receiver.webhooks
    assert ping.is_ping
    assert receiver.problems == []
    assert endpoint.pop("secret") == secret
    assert (endpoint["status"], endpoint["eventTypes"]) == ("ENABLED", types)
    assert endpoint["accountId"] == developer[0].account.id
    assert (await developers_client.get(f"{PATH}/{endpoint['id']}")).json() == endpoint
    assert (await developers_client.get(PATH)).json()["items"] == [endpoint]


async def test_an_endpoint_is_pending_until_its_receiver_passes(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    receiver.answer(401)
    endpoint = await registered(developers_client, receiver.url)
    assert endpoint["status"] == "PENDING"
    assert "401" in endpoint["statusReason"]
    assert endpoint["eventTypes"] is None
    path = f"{PATH}/{endpoint['id']}"
    receiver.answer(404)
    refused = await developers_client.post(f"{path}/enable")
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:rewind:problem:not-validated"
    assert "404" in (await developers_client.get(path)).json()["statusReason"]
    receiver.answer(204)
    receiver.expect(endpoint["secret"])
    enabled = (await developers_client.post(f"{path}/enable")).json()
    assert (enabled["status"], enabled["statusReason"]) == ("ENABLED", None)
    assert receiver.webhooks[-1].problem is None
    assert (await developers_client.delete(path)).status_code == 204
    assert (await developers_client.get(path)).status_code == 404
    assert (await developers_client.delete(path)).status_code == 404


async def test_members_of_an_endpoint_are_changed_and_the_others_kept(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    types = ["webhook.disabled"]
    created = await registered(
        developers_client, receiver.url, eventTypes=types, description="on-call"
    )
    path = f"{PATH}/{created.pop('id')}"
    requests = len(receiver.webhooks)

    async def changed(**members: Any) -> tuple[Any, ...]:
        answer = await developers_client.patch(path, json=members)
        assert answer.status_code == 200, answer.text
        assert "secret" not in answer.json()
        return tuple(answer.json()[name] for name in ("eventTypes", "description", "status"))

    assert await changed(eventTypes=["replay.failed"]) == (
        *(["replay.failed"], "on-call", "ENABLED"),
    )
    assert await changed(eventTypes=None) == (None, "on-call", "ENABLED")
    assert await changed(description="", url=receiver.url) == (None, "", "ENABLED")
    # Nothing that needs a verification.
    assert len(receiver.webhooks) == requests
    for body, field in (
        ({"eventTypes": []}, "eventTypes"),
        ({"url": None}, "url"),
        ({"url": "ftp://example.com"}, "url.scheme"),
        ({"secret": created["secret"]}, "secret"),
    ):
        refused = await developers_client.patch(path, json=body)
        assert (refused.status_code, refused.json()["field"]) == (400, field)


async def test_a_new_url_takes_effect_with_the_verification_of_its_receiver(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    endpoint = await registered(developers_client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    receiver.expect(endpoint["secret"])
    moved = (await developers_client.patch(path, json={"url": f"{receiver.url}/new"})).json()
    assert (moved["url"], moved["status"]) == (f"{receiver.url}/new", "ENABLED")
    ping = receiver.webhooks[-1]
    assert (ping.path.endswith("/new"), ping.problem) == (True, None)
    receiver.answer(401)
    moved = (await developers_client.patch(path, json={"url": f"{receiver.url}/other"})).json()
    assert (moved["status"], moved["validatedAt"]) == ("PENDING", None)
    assert "401" in moved["statusReason"]


async def test_both_secrets_sign_during_the_grace_period_of_a_rotation(
    developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    endpoint = await registered(developers_client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"

    async def tested(secret: str) -> bool:
        receiver.expect(secret)
        delivered: bool = (await developers_client.post(f"{path}/test")).json()["delivered"]
        return delivered

    rotated = await developers_client.post(f"{path}/secret/rotate", json={"gracePeriodSeconds": 60})
    assert rotated.headers["cache-control"] == "no-store"
    second = rotated.json()
    assert second["secret"] != endpoint["secret"]
    assert second["previousSecretExpiresAt"] is not None
    assert await tested(endpoint["secret"])
    assert await tested(second["secret"])
    body = {"gracePeriodSeconds": 0}
    third = (await developers_client.post(f"{path}/secret/rotate", json=body)).json()
    assert third["previousSecretExpiresAt"] is None
    assert not await tested(second["secret"])
    assert await tested(third["secret"])
    assert "secret" not in (await developers_client.get(path)).json()


async def test_a_disabled_endpoint_gets_no_notices_until_it_is_enabled(
    developers_client: AsyncClient, store: Store, webhook: Webhook, receiver: ReceiverThread
) -> None:
    endpoint = await registered(developers_client, receiver.url)
    path = f"{PATH}/{endpoint['id']}"
    store.disable_webhook(webhook.id, "first")
    disabled = (await developers_client.post(f"{path}/disable", json={"reason": "quiet"})).json()
    assert (disabled["status"], disabled["statusReason"]) == ("DISABLED", "quiet")
    store.enable_webhook(webhook.id, webhook.url)
    store.disable_webhook(webhook.id, "second")
    assert store.claim_account_notice(60, []) is None
    assert (await developers_client.post(f"{path}/enable")).json()["status"] == "ENABLED"
    assert store.claim_account_notice(60, []) is None


async def test_a_developer_sees_no_response_of_a_receiver_that_was_not_verified(
    client: AsyncClient, developers_client: AsyncClient, receiver: ReceiverThread
) -> None:
    receiver.answer(404)
    endpoint = await registered(developers_client, receiver.url)
    path = f"{PATH}/{endpoint['id']}/test"
    hidden = (await developers_client.post(path)).json()
    assert (hidden["delivered"], hidden["status"], hidden["response"]) == (False, 404, None)
    assert (await client.post(path)).json()["response"] is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": "https://example.com", "eventTypes": []}, "eventTypes"),
        ({"url": "https://example.com", "eventTypes": ["webhook.unknown"]}, "eventTypes[0]"),
        ({"url": "https://example.com", "description": "x" * 501}, "description"),
        ({"url": "https://example.com", "secret": "hunter2"}, "secret"),
        ({"url": "https://example.com", "events": ["*"]}, "events"),
        ({"url": "ftp://example.com"}, "url.scheme"),
    ],
)
async def test_an_invalid_endpoint_is_rejected_with_the_field(
    developers_client: AsyncClient, store: Store, body: dict[str, Any], field: str
) -> None:
    answer = await developers_client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert "hunter2" not in answer.text
    assert store.notice_endpoints().items == ()


async def test_a_private_address_is_rejected(
    developers_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "check_url", Guard(allow_private=False).check_url)
    answer = await developers_client.post(PATH, json={"url": "https://169.254.169.254/"})
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:rewind:problem:url-refused"


async def test_an_address_is_rejected_without_a_mail_server(
    developers_client: AsyncClient, store: Store, developer: Issued
) -> None:
    url = "mailto:ops@example.com"
    answer = await developers_client.post(PATH, json={"url": url})
    assert (answer.status_code, answer.json()["field"]) == (400, "url")
    assert "REWIND_SMTP_URL" in answer.json()["detail"]
    # One that was registered when there was a mail server.
    new = NewNoticeEndpoint(developer[0].account.id, url, "", new_secret())
    endpoint = store.create_notice_endpoint(new)
    refused = await developers_client.post(f"{PATH}/{endpoint.id}/enable")
    assert refused.status_code == 422
    assert "REWIND_SMTP_URL" in refused.json()["detail"]


async def test_an_account_has_a_limited_number_of_endpoints(
    developers_client: AsyncClient, others_client: AsyncClient, receiver: ReceiverThread
) -> None:
    for _ in range(ENDPOINTS_PER_ACCOUNT_MAX):
        await registered(developers_client, receiver.url)
    answer = await developers_client.post(PATH, json={"url": receiver.url})
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:rewind:problem:too-many-notice-endpoints"
    await registered(others_client, receiver.url)


async def test_endpoints_of_another_account_are_not_found(
    client: AsyncClient,
    developers_client: AsyncClient,
    others_client: AsyncClient,
    developer: Issued,
    receiver: ReceiverThread,
) -> None:
    account_id = developer[0].account.id
    endpoint = await registered(client, receiver.url, accountId=account_id)
    path = f"{PATH}/{endpoint['id']}"
    assert (await developers_client.get(path)).status_code == 200
    for method, target in (
        ("GET", path),
        *(("POST", f"{path}/{name}") for name in ("enable", "disable", "test", "secret/rotate")),
        ("DELETE", path),
    ):
        assert (await others_client.request(method, target)).status_code == 404, (method, target)
    assert (await others_client.patch(path, json={"description": "x"})).status_code == 404
    assert (await others_client.patch(path, json={"url": receiver.url})).status_code == 404
    assert (await others_client.get(PATH)).json()["items"] == []
    body = {"url": receiver.url, "accountId": account_id}
    assert (await others_client.post(PATH, json=body)).status_code == 403
    listed = await client.get(PATH, params={"accountId": account_id})
    assert [each["id"] for each in listed.json()["items"]] == [endpoint["id"]]
    unknown = {"url": receiver.url, "accountId": "acc_unknown"}
    assert (await client.post(PATH, json=unknown)).status_code == 404


async def test_notices_conform_to_the_openapi_document(
    developers_client: AsyncClient, store: Store, webhook: Webhook, receiver: ReceiverThread
) -> None:
    await registered(developers_client, receiver.url)
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
    store.cancel_replay(replay.id)
    store.claim_notice(60)
    store.disable_webhook(webhook.id, "answered 410")
    found = set()
    while notice := store.claim_account_notice(60, []):
        document = json.loads(notice.body)
        found.add(document["type"])
        model, _ = NOTICES[document["type"]]
        model.model_validate(document)
    assert found == {NoticeType.REPLAY_CANCELLED, NoticeType.WEBHOOK_DISABLED}


async def test_every_notice_is_in_the_webhooks_section() -> None:
    document = openapi_document()
    assert document["openapi"].startswith("3.1")
    assert document["webhooks"].keys() == set(NoticeType)
    for notice_type, item in document["webhooks"].items():
        operation = item["post"]
        names = [each["name"] for each in operation["parameters"]]
        assert names == ["webhook-id", "webhook-timestamp", "webhook-signature"]
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
        (sample,) = schema["examples"]
        assert NOTICES[notice_type][0].model_validate(sample)
