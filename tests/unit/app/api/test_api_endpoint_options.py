"""Options of webhooks: what is accepted, kept, shown and hidden."""

from typing import Any, Final

import pytest
from httpx import AsyncClient
from sqlalchemy import select

from app.domain.endpoint_options import (
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    EndpointOptions,
    Ordering,
)
from app.domain.model import Webhook
from app.store import Store
from app.store.tables import webhooks
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-value"

OAUTH2 = {
    "type": "oauth2",
    "tokenUrl": "https://login.example.com/token",
    "clientId": "rewind",
    "clientSecret": SECRET,
    "scope": "hooks",
    "clientAuthentication": "body",
}

UNSET: Final[dict[str, Any]] = {
    "headerNames": [],
    "authentication": None,
    "timeoutSeconds": None,
    "maxEventsPerSecond": None,
    "maxInFlight": None,
    "retrySchedule": None,
    "ordering": "none",
}


def shown(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in UNSET}


def stored(store: Store, webhook_id: str) -> str | None:
    query = select(webhooks.c.options).where(webhooks.c.id == webhook_id)
    options: str | None = store.database.read(
        lambda connection: connection.execute(query).scalar_one()
    )
    return options


async def test_options_are_used_from_the_first_request_and_their_secrets_never_shown(
    client: AsyncClient, store: Store, receiver: ReceiverThread
) -> None:
    answer = await client.post(
        "/webhooks",
        json={
            "url": receiver.url,
            "headers": {"X-Tenant": SECRET},
            "authentication": {"type": "basic", "username": "me", "password": SECRET},
            "timeoutSeconds": 5,
            "maxEventsPerSecond": 50,
            "maxInFlight": 2,
            "retrySchedule": [5, 60, 600],
            "ordering": "strict",
        },
    )
    assert answer.status_code == 201
    document = answer.json()
    assert document["status"] == "ENABLED"
    (ping,) = receiver.webhooks
    assert dict(ping.headers)["x-tenant"] == SECRET
    assert dict(ping.headers)["authorization"].startswith("Basic ")
    assert document["authentication"].pop("username") == "me"
    assert shown(document) == {
        "headerNames": ["x-tenant"],
        "authentication": {
            "type": "basic",
            **dict.fromkeys(("tokenUrl", "clientId", "scope", "audience")),
            "clientAuthentication": None,
        },
        "timeoutSeconds": 5,
        "maxEventsPerSecond": 50,
        "maxInFlight": 2,
        "retrySchedule": [5, 60, 600],
        "ordering": "strict",
    }
    webhook = store.webhook(document["id"])
    assert webhook.options == EndpointOptions(
        {"x-tenant": SECRET},
        BasicAuthentication("me", SECRET),
        5,
        50,
        2,
        (5, 60, 600),
        Ordering.STRICT,
    )
    assert SECRET not in repr(webhook)
    assert stored(store, webhook.id) is not None
    for path in ("/webhooks", answer.headers["location"]):
        assert SECRET not in (await client.get(path)).text
    await client.delete(answer.headers["location"])
    assert stored(store, webhook.id) is None


async def test_a_change_keeps_what_it_does_not_name(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    async def change(**members: object) -> EndpointOptions | None:
        answer = await client.patch(f"/webhooks/{webhook.id}", json=members)
        assert answer.status_code == 200, answer.text
        assert SECRET not in answer.text
        return store.webhook(webhook.id).options

    assert await change(description="new") is None
    bearer = {"type": "bearer", "token": SECRET}
    await change(headers={"x-a": "1", "X-B": "2"}, authentication=bearer)
    kept = BearerAuthentication(SECRET)
    assert await change(maxInFlight=1) == EndpointOptions(
        {"x-a": "1", "x-b": "2"}, kept, max_in_flight=1
    )
    assert await change(headers={"x-a": None, "x-c": "3"}, maxInFlight=None) == EndpointOptions(
        {"x-b": "2", "x-c": "3"}, kept
    )
    assert await change(headers=None, authentication=OAUTH2) == EndpointOptions(
        authentication=ClientCredentials(
            "https://login.example.com/token", "rewind", SECRET, "hooks", None, True
        )
    )
    (document,) = (await client.get("/webhooks")).json()["items"]
    assert document["authentication"] == {
        **{name: value for name, value in OAUTH2.items() if name != "clientSecret"},
        "username": None,
        "audience": None,
    }
    assert await change(authentication=None) is None
    for schedule in ((600, 600, 600), (1_800,), (5, 1_800, 7_200, 86_400), (1_500, 86_400)):
        changed = await change(retrySchedule=schedule)
        assert changed == EndpointOptions(retry_schedule_s=schedule)
        assert await change(description="kept") == changed
    assert await change(retrySchedule=None) is None
    assert await change(ordering="strict") == EndpointOptions(ordering=Ordering.STRICT)
    assert await change(description="kept") == EndpointOptions(ordering=Ordering.STRICT)
    assert await change(ordering=None) is None
    assert shown((await client.get(f"/webhooks/{webhook.id}")).json()) == UNSET


async def test_stored_limits_that_exceed_the_settings_do_not_refuse_other_changes(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    more = EndpointOptions(timeout_s=900, max_in_flight=500)
    store.update_webhook(webhook.id, change_options=lambda _: more)
    path = f"/webhooks/{webhook.id}"
    changes: list[dict[str, Any]] = [{"maxEventsPerSecond": 50}, {"timeoutSeconds": 900}]
    for change in changes:
        answer = await client.patch(path, json=change)
        assert answer.status_code == 200, answer.text
        shown_limits = (answer.json()["timeoutSeconds"], answer.json()["maxInFlight"])
        assert shown_limits == (900, 500)
    for member, value in (("timeoutSeconds", 901), ("maxInFlight", 499)):
        answer = await client.patch(path, json={member: value})
        assert (answer.status_code, answer.json()["field"]) == (400, member)


async def test_a_stored_schedule_that_exceeds_the_setting_does_not_refuse_other_changes(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    longer = EndpointOptions(retry_schedule_s=(3_600, 1))
    store.update_webhook(webhook.id, change_options=lambda _: longer)
    answer = await client.patch(f"/webhooks/{webhook.id}", json={"maxInFlight": 1})
    assert answer.status_code == 200, answer.text
    assert answer.json()["retrySchedule"] == [3_600, 1]
    answer = await client.patch(f"/webhooks/{webhook.id}", json={"retrySchedule": [3_600, 2]})
    assert (answer.status_code, answer.json()["field"]) == (400, "retrySchedule[0]")


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"headers": {"webhook-id": SECRET}}, "headers"),
        ({"headers": {"Content-Type": SECRET}}, "headers"),
        ({"headers": {"Host": SECRET}}, "headers"),
        ({"headers": {"proxy-authorization": SECRET}}, "headers"),
        ({"headers": {"transfer-encoding": SECRET}}, "headers"),
        ({"headers": {"x a": SECRET}}, "headers"),
        ({"headers": {"x-a": f"{SECRET}\r\nhost: b"}}, "headers"),
        ({"headers": {"x-a": f" {SECRET}"}}, "headers"),
        ({"headers": {"x-a": ""}}, "headers"),
        ({"headers": {f"x-{number}": SECRET for number in range(21)}}, "headers"),
        ({"headers": {"x-a": SECRET * 400}}, "headers"),
        ({"headers": {"x-a": [SECRET]}}, "headers.x-a"),
        ({"headers": SECRET}, "headers"),
        (
            {
                "headers": {"Authorization": SECRET},
                "authentication": {"type": "bearer", "token": SECRET},
            },
            "authentication",
        ),
        ({"authentication": SECRET}, "authentication"),
        ({"authentication": {"type": SECRET}}, "authentication"),
        ({"authentication": {"type": "bearer", "token": f"a {SECRET}"}}, "authentication.bearer"),
        (
            {"authentication": {"type": "basic", "username": f"a:{SECRET}", "password": "b"}},
            "authentication.basic.username",
        ),
        (
            {"authentication": {"type": "basic", "username": "a", "pasword": SECRET}},
            "authentication.basic",
        ),
        (
            {"authentication": OAUTH2 | {"tokenUrl": "ftp://login.example.com/"}},
            "authentication.tokenUrl",
        ),
        ({"authentication": OAUTH2 | {"clientSecret": SECRET * 200}}, "authentication.oauth2"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeoutSeconds": 16}, "timeoutSeconds"),
        ({"maxInFlight": 129}, "maxInFlight"),
        ({"retrySchedule": []}, "retrySchedule"),
        ({"retrySchedule": [0]}, "retrySchedule[0]"),
        ({"retrySchedule": [1.5]}, "retrySchedule[0]"),
        ({"retrySchedule": 5}, "retrySchedule"),
        ({"retrySchedule": [1] * 21}, "retrySchedule"),
        ({"retrySchedule": [1, 86_401]}, "retrySchedule[1]"),
        ({"retrySchedule": [1_801, 1]}, "retrySchedule[0]"),
        ({"retrySchedule": [1_600, 86_400, 86_400, 86_400, 86_400]}, "retrySchedule"),
        ({"retrySchedule": [1, 1, 1, 1], "ordering": "strict"}, "retrySchedule"),
        ({"maxEventsPerSecond": 0}, "maxEventsPerSecond"),
        ({"ordering": "fifo"}, "ordering"),
    ],
)
async def test_an_option_that_is_not_allowed_is_rejected_without_its_value(
    client: AsyncClient, store: Store, webhook: Webhook, members: dict[str, Any], field: str
) -> None:
    for answer in (
        await client.patch(f"/webhooks/{webhook.id}", json=members),
        await client.post("/webhooks", json={"url": webhook.url, **members}),
    ):
        assert answer.status_code == 400, answer.text
        assert answer.json()["field"].startswith(field)
        assert SECRET not in answer.text
    assert store.webhook(webhook.id).options is None
