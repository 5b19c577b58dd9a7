import json
from typing import Any

import pytest
from httpx import AsyncClient

from app.domain.grants import Grant
from app.domain.model import Webhook
from app.domain.rules import Rule, document_of
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.http.receiver_thread import ReceiverThread

pytestmark = pytest.mark.anyio

RULE = {"eventTypes": ["follow.*"], "where": {"data.userId": "42"}}


def path(webhook: Webhook, name: str = "") -> str:
    return f"/webhooks/{webhook.id}/rules" + (f"/{name}" if name else "")


def matches_path(webhook: Webhook) -> str:
    return f"/webhooks/{webhook.id}/rule-matches"


async def test_a_rule_is_created_replaced_and_deleted(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    made = await developers_client.put(path(webhook, "vip"), json=RULE)
    assert made.status_code == 201
    assert made.headers["location"] == path(webhook, "vip")
    named = {"webhookId": webhook.id, "name": "vip", "coveredByGrant": False}
    assert made.json() == named | RULE

    replaced = await developers_client.put(path(webhook, "vip"), json={"eventTypes": ["*"]})
    assert replaced.status_code == 200
    found = await developers_client.get(path(webhook, "vip"))
    assert found.json() == replaced.json()
    assert store.rule(webhook.id, "vip") == Rule(webhook.id, "vip", ("*",))

    assert (await developers_client.delete(path(webhook, "vip"))).status_code == 204
    for gone in (
        await developers_client.get(path(webhook, "vip")),
        await developers_client.delete(path(webhook, "vip")),
    ):
        assert gone.status_code == 404


async def test_the_owner_of_a_rule_learns_whether_a_grant_covers_it(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    store.put_grant(Grant(webhook.account_id, "user-42", ("follow.*",), (("data.userId", "42"),)))
    covered = await developers_client.put(path(webhook, "covered"), json=RULE)
    denied = await developers_client.put(path(webhook, "denied"), json={"eventTypes": ["dm.*"]})
    answers = [covered, denied, await developers_client.get(path(webhook, "denied"))]
    assert [answer.json()["coveredByGrant"] for answer in answers] == [True, False, False]
    listed = (await developers_client.get(path(webhook))).json()["items"]
    assert {rule["name"]: rule["coveredByGrant"] for rule in listed} == {
        "covered": True,
        "denied": False,
    }
    store.delete_grant(webhook.account_id, "user-42")
    answer = await developers_client.get(path(webhook, "covered"))
    assert answer.json()["coveredByGrant"] is False


@pytest.mark.parametrize(
    ("event_types", "is_covered"), [(["dm.sent"], False), (["*"], True), (None, None)]
)
async def test_a_registration_says_whether_a_grant_covers_its_rule(
    developers_client: AsyncClient,
    store: Store,
    developer: Issued,
    receiver: ReceiverThread,
    event_types: list[str] | None,
    is_covered: bool | None,
) -> None:
    store.put_grant(Grant(developer[0].account.id, "follows", ("follow.*",)))
    body = {"url": receiver.url} | ({} if event_types is None else {"eventTypes": event_types})
    answer = await developers_client.post("/webhooks", json=body)
    assert (answer.status_code, answer.json()["coveredByGrant"]) == (201, is_covered)


async def test_rules_are_listed_by_name_a_page_at_a_time(
    developers_client: AsyncClient, webhook: Webhook
) -> None:
    for name in ("b", "c", "a"):
        await developers_client.put(path(webhook, name), json=RULE)
    first = (await developers_client.get(path(webhook), params={"limit": 2})).json()
    cursor = {"cursor": first["nextCursor"]}
    second = (await developers_client.get(path(webhook), params=cursor)).json()
    assert [rule["name"] for rule in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["nextCursor"] is None


@pytest.mark.parametrize("value", ["42", 42, -1, 10**30, 0.5, True, False, None, ""])
async def test_a_condition_keeps_the_kind_of_its_value(
    developers_client: AsyncClient, store: Store, webhook: Webhook, value: object
) -> None:
    rule = {"eventTypes": ["*"], "where": {"data.flag": value}}
    answer = await developers_client.put(path(webhook, "one"), json=rule)
    assert answer.json()["where"] == {"data.flag": value}
    (kept,) = [value for _, value in store.rule(webhook.id, "one").where]
    assert (kept, type(kept)) == (value, type(value))
    assert type(answer.json()["where"]["data.flag"]) is type(value)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"eventTypes": []}',
        b'{"eventTypes": ["with space"]}',
        b'{"eventTypes": ["' + b"x" * 257 + b'"]}',
        b'{"eventTypes": [' + b",".join([b'"x"'] * 51) + b"]}",
        b'{"eventTypes": ["*"], "where": {"": 1}}',
        b'{"eventTypes": ["*"], "where": {"a": [[1]]}}',
        b'{"eventTypes": ["*"], "where": {"a": {"b": {}}}}',
        b'{"eventTypes": ["*"], "where": {"a": {"b": {"\\ud800": 1}}}}',
        b'{"eventTypes": ["*"], "where": {"a": {"prefix": "a"}}}',
        b'{"eventTypes": ["*"], "where": {"a": {"": 1}}}',
        b'{"eventTypes": ["*"], "where": {"a": {"' + b"b" * 255 + b'": 1}}}',
        b'{"eventTypes": ["*"], "where": {"a": ' + b'{"a":' * 99 + b"1" + b"}" * 101,
        b'{"eventTypes": ["*"], "where": {"a' + b".a" * 16 + b'": [1]}}',
        b'{"eventTypes": ["*"], "where": {"a": {"b": 1}, "a.b": [1]}}',
        b'{"eventTypes": ["*"], "where": {"a": {"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}}}',
        b'{"eventTypes": ["*"], "where": {"a": [' + b"1," * 50 + b"1]}}",
        b'{"eventTypes": ["*"], "where": {"a": ["' + b'","'.join([b"x" * 999] * 5) + b'"]}}',
        b'{"eventTypes": ["*"], "where": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"eventTypes": ["*"], "where": {"a": NaN}}',
        b'{"eventTypes": ["*"], "where": {"a": 1e999}}',
        b'{"eventTypes": ["*"], "where": {"a": "\\ud800"}}',
        b'{"eventTypes": ["*"], "where": {"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}}',
        b'{"eventTypes": ["*"], "when": {}}',
    ],
)
async def test_an_invalid_rule_is_rejected(
    developers_client: AsyncClient, webhook: Webhook, body: bytes
) -> None:
    answer = await developers_client.put(
        path(webhook, "one"), content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "urn:rewind:problem:invalid-request"


@pytest.mark.parametrize(
    ("condition", "field", "allowed"),
    [
        (float("1e999"), "where.data.user", "a number, true, false or null, or a list of altern"),
        ({"id": {"exists": True}}, "where.data.user.id", "members of the event; operators stand"),
        (["a", {"prefix": 1}], "where.data.user[1].prefix", "a text of up to 1,000 characters"),
        ({"id": [{"like": "a"}]}, "where.data.user.id[0]", "an object with one of prefix, suffix"),
        ([*range(51)], "where", "up to 50 alternatives in all patterns"),
    ],
)
async def test_an_invalid_condition_is_rejected_with_its_place(
    developers_client: AsyncClient, webhook: Webhook, condition: Any, field: str, allowed: str
) -> None:
    content = json.dumps({"eventTypes": ["*"], "where": {"data.user": condition}})
    headers = {"content-type": "application/json"}
    answer = await developers_client.put(path(webhook, "one"), content=content, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (400, field)
    assert allowed in problem["allowed"]
    assert "errors" not in problem


async def test_every_invalid_condition_is_named(
    developers_client: AsyncClient, webhook: Webhook
) -> None:
    rule = {"eventTypes": ["*"], "where": {"a": [], "b": [1], "c": {"d": [{"exists": 1}]}}}
    problem = (await developers_client.put(path(webhook, "one"), json=rule)).json()
    assert [each["field"] for each in problem["errors"]] == ["where.a", "where.c.d[0].exists"]


async def test_patterns_are_returned_by_their_full_paths(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    nested = {"amount": [{"numeric": [">", 1.0]}, "ä"], "user": {"id": 42, "name": [None]}}
    rule = {"eventTypes": ["*"], "where": {"data": nested, "type": ["a"]}}
    answer = await developers_client.put(path(webhook, "one"), json=rule)
    assert answer.status_code == 201, answer.text
    where = {
        "data.amount": [{"numeric": [">", 1.0]}, "ä"],
        "data.user.id": 42,
        "data.user.name": [None],
        "type": ["a"],
    }
    assert answer.json()["where"] == where
    assert json.dumps(document_of(store.rule(webhook.id, "one").where)) == json.dumps(where)
    sample = {"type": "a", "data": {"amount": 2, "user": {"id": 42, "name": None}}}
    answer = await developers_client.post(matches_path(webhook), json=sample)
    assert answer.json()["matchingRules"] == ["one"]
    sample = {"type": "a", "data": {"amount": 1, "user": {"id": 42, "name": None}}}
    answer = await developers_client.post(matches_path(webhook), json=sample)
    assert answer.json()["matchingRules"] == []


async def test_a_short_list_is_rejected_with_our_message(
    developers_client: AsyncClient, webhook: Webhook
) -> None:
    problem = (await developers_client.put(path(webhook, "one"), json={"eventTypes": []})).json()
    assert problem["detail"] == "eventTypes is '[]'; allowed is 1 or more of them"


@pytest.mark.parametrize("name", ["with space", "a.b", "x" * 65, "%00"])
async def test_an_invalid_rule_name_is_rejected(
    developers_client: AsyncClient, webhook: Webhook, name: str
) -> None:
    for answer in (
        await developers_client.put(path(webhook, name), json=RULE),
        await developers_client.get(path(webhook, name)),
        await developers_client.delete(path(webhook, name)),
    ):
        assert answer.status_code == 400
        assert answer.json()["field"] == "name"


async def test_rules_per_webhook_are_limited(
    developers_client: AsyncClient,
    store: Store,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.store.rules.RULES_PER_WEBHOOK_MAX", 1)
    await developers_client.put(path(webhook, "one"), json=RULE)
    assert (await developers_client.put(path(webhook, "one"), json=RULE)).status_code == 200
    answer = await developers_client.put(path(webhook, "two"), json=RULE)
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:rewind:problem:too-many-rules"


async def test_rules_of_a_deleted_webhook_are_gone(
    developers_client: AsyncClient, webhook: Webhook, client: AsyncClient
) -> None:
    await developers_client.put(path(webhook, "one"), json=RULE)
    await developers_client.delete(f"/webhooks/{webhook.id}")
    answers: list[Any] = [
        await client.get(path(webhook)),
        await client.get(path(webhook, "one")),
        await client.put(path(webhook, "one"), json=RULE),
    ]
    assert [answer.status_code for answer in answers] == [404, 404, 404]


async def test_event_types_of_a_webhook_are_those_of_its_default_rule(
    developers_client: AsyncClient, store: Store, webhook: Webhook, receiver: ReceiverThread
) -> None:
    async def change(event_types: list[str] | None) -> Any:
        answer = await developers_client.patch(
            f"/webhooks/{webhook.id}", json={"eventTypes": event_types}
        )
        assert answer.status_code == 200
        return answer.json()["eventTypes"]

    async def listed() -> Any:
        (found,) = (await developers_client.get("/webhooks")).json()["items"]
        assert found == (await developers_client.get(f"/webhooks/{webhook.id}")).json()
        return found["eventTypes"]

    assert await listed() is None
    assert await change(["follow.*", "dm.sent"]) == ["follow.*", "dm.sent"]
    assert store.rule(webhook.id, "default") == Rule(webhook.id, "default", ("follow.*", "dm.sent"))
    await developers_client.put(path(webhook, "default"), json=RULE)
    await developers_client.patch(f"/webhooks/{webhook.id}", json={"description": "kept"})
    assert await listed() == ["follow.*"]
    # Its conditions stay.
    await change(["dm.*"])
    assert store.rule(webhook.id, "default").where == (("data.userId", "42"),)
    before = store.routing_changes(0).revision
    assert await change(None) is None
    assert store.routing_changes(before).gone_rules == ((webhook.id, "default"),)
    assert await listed() is None
    assert await change(None) is None
    rotated = await developers_client.post(f"/webhooks/{webhook.id}/secret/rotate")
    assert rotated.json()["eventTypes"] is None
    registered = {"url": receiver.url, "eventTypes": ["a.*"]}
    made = await developers_client.post("/webhooks", json=registered)
    assert made.json()["eventTypes"] == ["a.*"]


@pytest.mark.parametrize("event_types", [[], "a", [""], ["a b"], ["a"] * 51])
async def test_event_types_that_are_not_allowed_are_rejected(
    developers_client: AsyncClient, webhook: Webhook, event_types: Any
) -> None:
    answer = await developers_client.patch(
        f"/webhooks/{webhook.id}", json={"description": "new", "eventTypes": event_types}
    )
    assert answer.status_code == 400
    assert answer.json()["field"].startswith("eventTypes")


async def test_event_types_beyond_the_limits_of_rules_change_nothing(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    for number in range(20):
        store.put_rule(Rule(webhook.id, f"rule-{number}", (f"type.{number}",)))
    answer = await developers_client.patch(
        f"/webhooks/{webhook.id}", json={"description": "new", "eventTypes": ["other.*"]}
    )
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:rewind:problem:too-many-rules")
    assert store.webhook(webhook.id) == webhook


async def test_a_sample_event_is_compared_with_rules_and_grants(
    developers_client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    async def match(**members: Any) -> tuple[list[str], bool, bool]:
        answer = await developers_client.post(matches_path(webhook), json=members)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        return tuple(
            document.pop(name) for name in ("matchingRules", "coveredByGrant", "isAddressed")
        )

    event = {"type": "follow.created", "data": {"userId": "42", "number": 42}}
    assert await match(**event) == ([], False, False)
    for name, types, where in (
        ("user", ("follow.*",), (("data.userId", "42"),)),
        ("any", ("*",), ()),
        ("number", ("*",), (("data.number", "42"),)),
        ("time", ("*",), (("time", "2026-11-21T08:00:00.000Z"),)),
    ):
        store.put_rule(Rule(webhook.id, name, types, where))
    assert await match(**event) == (["any", "user"], False, False)
    account = webhook.account_id
    assert await match(**event, accountId=account) == (["any", "user"], True, True)
    assert await match(**event, accountId="acc_other") == (["any", "user"], False, False)
    store.put_grant(Grant(account, "user-42", ("*",), (("data.userId", "42"),)))
    assert await match(**event) == (["any", "user"], True, True)
    # What a receiver gets is accepted as it is.
    received = {"id": "evt_1", "type": "dm.sent", "time": "2026-11-21T08:00:00Z", "data": {}}
    assert await match(**received) == (["any", "time"], False, False)


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"data": {}}, "type"),
        ({"type": "a", "data": []}, "data"),
        ({"type": "a b", "data": {}}, "type"),
        ({"type": "a", "data": {}, "other": 1}, "other"),
    ],
)
async def test_a_sample_that_is_no_event_is_rejected(
    developers_client: AsyncClient, webhook: Webhook, members: dict[str, Any], field: str
) -> None:
    answer = await developers_client.post(matches_path(webhook), json=members)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_rules_of_other_accounts_cannot_be_tested(
    others_client: AsyncClient, webhook: Webhook
) -> None:
    answer = await others_client.post(matches_path(webhook), json={"type": "a", "data": {}})
    assert answer.status_code == 404
