"""The REST interface without a socket: what routes answer, and what they make of nonsense."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from logbroker import json_log
from logbroker.schemas.avro.schema import TEXT_BYTES_MAX
from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.errors import StoreUnavailable
from logbroker.schemas.lookup import ANSWER_BYTES_MAX
from logbroker.schemas.rest.api import LISTED_CHARS_MAX
from logbroker.schemas.service import (
    ALLOWED_TYPES,
    BODY_BYTES_MAX,
    CHANGE_THREADS,
    CONTENT_TYPE,
    HEADERS_BYTES_MAX,
    NEWEST_THREADS,
    UNDER_WAY_MAX,
    URL_BYTES_MAX,
    RegistryService,
)
from tests.support.processes.waiting import DEADLINE_S, until_async
from tests.support.schemas.memory_log import MemoryLog

STRING = {"schema": '"string"'}


class RegistryClient:
    """Sends requests to a registry service, one after the other."""

    def __init__(self, *, is_read_only: bool = False) -> None:
        self.log = MemoryLog()
        self.registry = SchemaRegistry(self.log, is_read_only=is_read_only)
        self.service = RegistryService(self.registry, self.log.catch_up)

    def close(self) -> None:
        self.service.close()

    def ask(self, method: str, url: str, document: Any = None, **more: Any) -> httpx.Response:
        if document is not None:
            more = {"content": json.dumps(document), "headers": {"content-type": CONTENT_TYPE}}
        return asyncio.run(self._ask(method, url, **more))

    async def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.service)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(method, f"http://registry{url}", **more)

    def register(self, subject: str, schema: str, **more: Any) -> int:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self.ask("POST", path, {"schema": schema, **more})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["id"])


@pytest.fixture
def client() -> Iterator[RegistryClient]:
    with closing(RegistryClient()) as client:
        yield client


def status_and_code(answer: httpx.Response) -> tuple[int, int]:
    assert answer.headers["content-type"] == CONTENT_TYPE
    document = answer.json()
    assert document.keys() == {"error_code", "message"}
    assert document["message"]
    return answer.status_code, document["error_code"]


def test_the_root_answers_an_empty_object(client: RegistryClient) -> None:
    answer = client.ask("GET", "/")
    assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["content-type"] == CONTENT_TYPE


@pytest.mark.parametrize(
    "subject", ["a", "a/b", "a b", "ü%2F", ":.ctx:a", "versions", "..", "a?b#c"]
)
def test_a_subject_may_be_named_by_anything(client: RegistryClient, subject: str) -> None:
    path = f"/subjects/{quote(subject, safe='')}".replace("/..", "/%2E%2E")
    assert client.ask("POST", f"{path}/versions", STRING).json() == {"id": 1}
    assert client.ask("GET", "/subjects").json() == [subject]
    found = client.ask("GET", f"{path}/versions/latest").json()
    assert found == {"subject": subject, "version": 1, "id": 1, **STRING}
    assert client.ask("POST", path, STRING).json() == found
    assert client.ask("PUT", f"/config{path.removeprefix('/subjects')}", {"compatibility": "full"})
    assert client.registry.compatibility(subject).value == "FULL"
    assert client.ask("DELETE", path).json() == [1]


def test_a_slash_at_the_end_changes_nothing(client: RegistryClient) -> None:
    assert client.ask("GET", "/subjects/").json() == []


def test_lists_come_in_pages(client: RegistryClient) -> None:
    for name in "abcd":
        client.register(name, '"string"')
    assert client.ask("GET", "/subjects?offset=1&limit=2").json() == ["b", "c"]
    assert client.ask("GET", "/subjects?limit=-1&offset=3").json() == ["d"]
    assert client.ask("GET", "/schemas/ids/1/subjects?limit=0").json() == []
    assert client.ask("GET", "/schemas/ids/1/versions?subject=b").json() == [
        {"subject": "b", "version": 1}
    ]
    assert status_and_code(client.ask("GET", "/subjects?limit=many")) == (400, 400)
    assert status_and_code(client.ask("GET", "/subjects?limit=99999999999999999999")) == (400, 400)


def test_a_schema_is_given_as_itself(client: RegistryClient) -> None:
    client.register("s", '"string"')
    for path in ("/schemas/ids/1/schema", "/subjects/s/versions/1/schema"):
        assert client.ask("GET", path).text == '"string"'


def test_deleted_versions_are_listed_when_asked_for(client: RegistryClient) -> None:
    for schema in ('"int"', '"long"'):
        client.register("s", schema)
    client.ask("DELETE", "/subjects/s/versions/latest")
    assert client.ask("GET", "/subjects/s/versions").json() == [1]
    assert client.ask("GET", "/subjects/s/versions?deleted=true").json() == [1, 2]
    assert client.ask("GET", "/subjects/s/versions?deletedOnly=true").json() == [2]
    assert client.ask("GET", "/subjects/s/versions/2?deleted=TRUE").json()["id"] == 2
    assert status_and_code(client.ask("GET", "/subjects/s/versions/2")) == (404, 40402)
    client.ask("DELETE", "/subjects/s")
    assert client.ask("GET", "/subjects/s/versions?deletedOnly=true").json() == [1, 2]
    assert client.ask("GET", "/subjects?deletedOnly=true").json() == ["s"]


@pytest.mark.parametrize("version", ["0", "-2", "x", "2147483648", "1e3", "", "9" * 5000])
def test_a_version_is_a_number_from_one_on_or_latest(client: RegistryClient, version: str) -> None:
    client.register("s", '"string"')
    assert status_and_code(client.ask("GET", f"/subjects/s/versions/{version}/schema")) == (
        422,
        42202,
    )


@pytest.mark.parametrize("schema_id", ["0", "-1", "x", "2147483648", "9" * 5000])
def test_an_id_that_nothing_can_have_is_not_found(client: RegistryClient, schema_id: str) -> None:
    assert status_and_code(client.ask("GET", f"/schemas/ids/{schema_id}")) == (404, 40403)


def test_a_compatibility_check_reports_the_problems(client: RegistryClient) -> None:
    client.register("s", '"int"')
    path = "/compatibility/subjects/s/versions"
    for each in (path, f"{path}/latest", f"{path}/1"):
        assert client.ask("POST", each, STRING).json() == {"is_compatible": False}
        verbose = client.ask("POST", f"{each}?verbose=true", STRING).json()
        assert not verbose["is_compatible"]
        assert "int" in verbose["messages"][0]
    versions = "/compatibility/subjects/unknown/versions"
    assert client.ask("POST", f"{versions}/latest", STRING).json() == {"is_compatible": True}
    assert status_and_code(client.ask("POST", f"{versions}/1", STRING)) == (404, 40401)
    assert status_and_code(client.ask("POST", f"{versions}/latest", {"schema": "no"})) == (
        422,
        42201,
    )


def test_levels_are_set_shown_and_taken_away(client: RegistryClient) -> None:
    assert client.ask("GET", "/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert status_and_code(client.ask("GET", "/config/s")) == (404, 40408)
    by_global = client.ask("GET", "/config/s?defaultToGlobal=true").json()
    assert by_global == {"compatibilityLevel": "BACKWARD"}
    level = {"compatibility": "FORWARD_TRANSITIVE", "normalize": None}
    assert client.ask("PUT", "/config/s", level).json() == {"compatibility": "FORWARD_TRANSITIVE"}
    assert client.ask("GET", "/config/s").json() == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
    deleted = client.ask("DELETE", "/config/s").json()
    assert deleted == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
    for document in (
        {},
        {"compatibility": 5},
        {"compatibility": "SOME"},
        {"compatibility": "FULL", "alias": "x"},
    ):
        assert status_and_code(client.ask("PUT", "/config", document)) == (422, 42203)


def test_all_schemas_are_listed_with_their_places(client: RegistryClient) -> None:
    used = client.register("a.b", '{"type":"fixed","name":"Used","size":1}')
    references = [{"name": "Used", "subject": "a.b", "version": 1}]
    client.ask("PUT", "/config", {"compatibility": "NONE"})
    for schema in ('"int"', '"long"', '"bytes"'):
        client.register("a.c", schema)
    client.register("b", '["Used"]', references=references)
    client.ask("DELETE", "/subjects/a.c/versions/3")

    def listed(query: str = "") -> list[tuple[str, int]]:
        answer = client.ask("GET", f"/schemas{query}").json()
        return [(each["subject"], each["version"]) for each in answer]

    everything = [("a.b", 1), ("a.c", 1), ("a.c", 2), ("b", 1)]
    assert listed() == everything
    assert listed("?deleted=true") == [*everything[:3], ("a.c", 3), ("b", 1)]
    assert listed("?latestOnly=true") == [("a.b", 1), ("a.c", 2), ("b", 1)]
    assert listed("?latestOnly=true&deleted=true") == [("a.b", 1), ("a.c", 3), ("b", 1)]
    assert listed("?subjectPrefix=a.&offset=1&limit=1") == [("a.c", 1)]
    assert listed("?subjectPrefix=none") == []
    first, *_, last = client.ask("GET", "/schemas").json()
    assert first == client.ask("GET", "/subjects/a.b/versions/1").json()
    assert (first["id"], last["references"]) == (used, references)


def test_a_list_of_schemas_that_is_too_long_is_asked_for_in_parts(client: RegistryClient) -> None:
    doc = "x" * (TEXT_BYTES_MAX - 100)
    many = LISTED_CHARS_MAX // len(doc) + 1
    for number in range(many):
        client.register(
            f"s{number}", f'{{"type":"fixed","name":"F","size":{number + 1},"doc":"{doc}"}}'
        )
    assert status_and_code(client.ask("GET", "/schemas")) == (400, 400)
    assert len(client.ask("GET", f"/schemas?limit={many - 1}").json()) == many - 1
    assert len(client.ask("GET", f"/schemas?offset={many}").json()) == 0


def test_cluster_id_and_version_are_reported(client: RegistryClient) -> None:
    scope = client.ask("GET", "/v1/metadata/id").json()["scope"]
    assert scope["clusters"]["kafka-cluster"] == "memory"
    assert client.ask("GET", "/v1/metadata/version").json() == {"version": version("rewind")}


def test_there_is_one_mode(client: RegistryClient) -> None:
    for path in ("/mode", "/mode/s"):
        assert client.ask("GET", path).json() == {"mode": "READWRITE"}
        assert client.ask("PUT", path, {"mode": "READWRITE"}).json() == {"mode": "READWRITE"}
        assert status_and_code(client.ask("PUT", path, {"mode": "IMPORT"})) == (422, 42205)
        assert status_and_code(client.ask("PUT", path, {"mode": "SOME"})) == (422, 42204)


def test_a_registry_that_only_reads_says_so() -> None:
    with closing(RegistryClient(is_read_only=True)) as client:
        assert client.ask("GET", "/mode").json() == {"mode": "READONLY"}
        assert client.ask("PUT", "/mode", {"mode": "READONLY"}).json() == {"mode": "READONLY"}
        assert status_and_code(client.ask("PUT", "/mode", {"mode": "READWRITE"})) == (422, 42205)
        assert status_and_code(client.ask("POST", "/subjects/s/versions", STRING)) == (422, 42205)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({}, 42201),
        ({"schema": None}, 42201),
        ({"schema": {"type": "string"}}, 42201),
        ({"schema": " "}, 42201),
        ({"schema": "\ud800"}, 42201),
        ({"schema": '"\\ud800"'}, 42201),
        ({"schema": "[" * 100_000}, 42201),
        ({"schema": '{"type":' * 5_000 + '"int"' + "}" * 5_000}, 42201),
        ({**STRING, "schemaType": "JSON"}, 42201),
        ({**STRING, "schemaType": 5}, 42201),
        ({**STRING, "metadata": {"properties": {"a": "b"}}}, 42201),
        ({**STRING, "ruleSet": {"domainRules": []}}, 42201),
        ({**STRING, "references": {}, "id": 5}, 42205),
        ({**STRING, "version": 5}, 42205),
        ({**STRING, "references": "x"}, 42201),
        ({**STRING, "references": [5]}, 42201),
        ({**STRING, "references": [{"name": "x", "subject": "y", "version": 0}]}, 42201),
        ({**STRING, "references": [{"name": "x", "subject": "y", "version": 1}]}, 42201),
        ({**STRING, "references": [{"name": "x", "subject": "y", "version": 10**300}]}, 42201),
    ],
)
def test_what_cannot_be_registered_is_refused(
    client: RegistryClient, document: Any, code: int
) -> None:
    assert status_and_code(client.ask("POST", "/subjects/s/versions", document)) == (422, code)
    assert client.ask("GET", "/subjects").json() == []


def test_true_is_no_version_of_a_reference(client: RegistryClient) -> None:
    client.register("far", '{"type":"fixed","name":"Far","size":1}')
    references = [{"name": "Far", "subject": "far", "version": True}]
    answer = client.ask(
        "POST", "/subjects/s/versions", {"schema": '"Far"', "references": references}
    )
    assert status_and_code(answer) == (422, 42201)


def test_the_client_accepts_the_largest_stored_schema(client: RegistryClient) -> None:
    frame = '{"type":"int","doc":"%s"}'
    schema_id = client.register("s", frame % ("\u00fc" * ((TEXT_BYTES_MAX - len(frame) + 2) // 2)))
    answer = client.ask("GET", f"/schemas/ids/{schema_id}").content
    assert TEXT_BYTES_MAX < len(answer) < ANSWER_BYTES_MAX


def test_what_javas_client_writes_for_nothing_is_nothing(client: RegistryClient) -> None:
    nothing: dict[str, Any] = {
        "version": 0,
        "id": -1,
        "metadata": None,
        "ruleSet": None,
        "references": [],
    }
    assert client.register("s", '"string"', schemaType="AVRO", **nothing) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000, b"9" * 5_000])
def test_a_body_is_a_json_object(client: RegistryClient, body: bytes) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = client.ask("POST", "/subjects/s", content=body, headers=headers)
    assert status_and_code(answer) == (400, 400)


def test_a_body_is_of_a_type_that_no_page_sends_unasked(client: RegistryClient) -> None:
    """What a page in a browser may send to anybody: the three types of forms, and none."""
    content = json.dumps(STRING).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind} if kind else {}
        answer = client.ask("POST", "/subjects/s/versions", content=content, headers=headers)
        assert status_and_code(answer) == (415, 415)
        assert repr(kind) in answer.json()["message"]
    for kind in ALLOWED_TYPES:
        headers = {"content-type": kind}
        assert client.ask("POST", "/subjects/s/versions", content=content, headers=headers)
    assert client.ask("GET", "/subjects").json() == ["s"]


def test_who_changed_what_is_in_the_log(
    client: RegistryClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.register("a b", '"string"')
    client.ask("DELETE", "/subjects/none?permanent=true")
    # These only ask.
    client.ask("POST", "/subjects/a%20b", STRING)
    client.ask("POST", "/compatibility/subjects/a%20b/versions/latest", STRING)
    client.ask("GET", "/subjects")
    said = [text for text in caplog.messages if text.startswith("change ")]
    assert said == [
        f"change {each} client=127.0.0.1 user=None"
        for each in (
            "method=POST path=/subjects/a%20b/versions status=200",
            "method=DELETE path=/subjects/none?permanent=true status=404",
        )
    ]


def test_lines_of_rejected_changes_are_limited_and_those_of_changes_are_not(
    client: RegistryClient,
    limited_client_loggers: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_log, "REPETITIONS_MAX", 2)
    caplog.set_level(logging.INFO)
    for number in range(5):
        client.ask("DELETE", f"/subjects/none{number}")
        client.register(f"s{number}", '"string"')
    lines = caplog.text
    assert (lines.count("status=404"), lines.count("status=200")) == (2, 5)


def test_what_is_no_route_is_refused(client: RegistryClient) -> None:
    for method, path in (("GET", "/nothing"), ("GET", "/subjects/a/b/c/d/e")):
        assert status_and_code(client.ask(method, path)) == (404, 404)
    answer = client.ask("PATCH", "/config")
    assert status_and_code(answer) == (405, 405)
    assert answer.headers["allow"] == "DELETE, GET, PUT"


def test_large_requests_are_refused(client: RegistryClient) -> None:
    assert status_and_code(client.ask("GET", "/subjects?a=" + "x" * URL_BYTES_MAX)) == (414, 414)
    large = {"x": "y" * HEADERS_BYTES_MAX}
    assert status_and_code(client.ask("GET", "/subjects", headers=large)) == (431, 431)
    typed = {"content-type": CONTENT_TYPE}
    body = b" " * (BODY_BYTES_MAX + 1)
    assert status_and_code(client.ask("POST", "/subjects/s", content=body, headers=typed)) == (
        413,
        413,
    )
    many = "&".join(f"a{number}=1" for number in range(100))
    assert status_and_code(client.ask("GET", f"/subjects?{many}")) == (400, 400)


def test_a_body_that_does_not_announce_its_size_is_bounded_too(client: RegistryClient) -> None:
    pieces: list[Message] = [
        {"type": "http.request", "body": b" " * 2**20, "more_body": True} for _ in range(10)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return pieces.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/subjects/s",
        "raw_path": b"/subjects/s",
        "query_string": b"",
        "headers": [(b"content-type", CONTENT_TYPE.encode())],
    }
    asyncio.run(client.service(scope, receive, send))
    assert sent[0]["status"] == 413
    assert len(pieces) == 10 - BODY_BYTES_MAX // 2**20 - 1


def test_requests_beyond_the_queue_limit_are_rejected(client: RegistryClient) -> None:
    may_go = threading.Event()
    client.log.catch_up = may_go.wait  # type: ignore[assignment,method-assign]

    async def ask_many() -> list[int]:
        # An unknown id is looked for in the log, which does not answer now.
        asked = [
            asyncio.ensure_future(client._ask("GET", "/schemas/ids/1"))
            for _ in range(UNDER_WAY_MAX)
        ]
        try:
            newest = client.service._newest
            await until_async(lambda: newest._under_way == UNDER_WAY_MAX, "all wait")
            assert status_and_code(await client._ask("GET", "/schemas/ids/1")) == (503, 503)
        finally:
            may_go.set()
        return [(await each).status_code for each in asked]

    assert asyncio.run(ask_many()) == [404] * UNDER_WAY_MAX
    assert client.ask("GET", "/schemas/ids/1").status_code == 404


def test_reads_are_answered_while_writes_wait_for_the_log(client: RegistryClient) -> None:
    client.register("s", '"string"')
    may_go = threading.Event()
    client.log.catch_up = may_go.wait  # type: ignore[assignment,method-assign]
    client.log.append = lambda decided: may_go.wait()  # type: ignore[method-assign]
    crowd = CHANGE_THREADS + NEWEST_THREADS

    async def ask_known() -> list[int]:
        posted = {"content": json.dumps(STRING), "headers": {"content-type": CONTENT_TYPE}}
        waiting = [
            asyncio.ensure_future(each)
            for number in range(crowd)
            for each in (
                client._ask("GET", "/schemas/ids/2"),
                client._ask("POST", f"/subjects/new-{number}/versions", **posted),
            )
        ]
        desks = (client.service._newest, client.service._changes)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await until_async(lambda: all(d._under_way == crowd for d in desks), "all wait")
                known = [
                    await client._ask("GET", "/schemas/ids/1"),
                    await client._ask("POST", "/subjects/s", **posted),
                    await client._ask("POST", "/compatibility/subjects/s/versions", **posted),
                ]
                assert not any(each.done() for each in waiting)
        finally:
            may_go.set()
        await asyncio.gather(*waiting)
        return [each.status_code for each in known]

    assert asyncio.run(ask_known()) == [200, 200, 200]


def test_requests_are_counted_by_route_and_status(client: RegistryClient) -> None:
    client.register("s", '"string"')
    client.ask("GET", "/subjects/s/versions/9")
    client.ask("GET", "/nothing")
    text = client.ask("GET", "/metrics").text
    versions = "/subjects/{subject}/versions"
    for labels in (
        f'method="POST",route="{versions}",status="200"',
        f'method="GET",route="{versions}/{{version}}",status="404"',
        'method="other",route="other",status="404"',
    ):
        assert f"logbroker_registry_requests_total{{{labels}}} 1.0" in text
    assert "logbroker_registry_subjects 1.0" in text
    assert "logbroker_registry_up 1.0" in text


def test_an_unreachable_log_is_reported_by_probes_and_metrics(client: RegistryClient) -> None:
    def away() -> None:
        raise StoreUnavailable("The log does not answer.")

    service = RegistryService(client.registry, away)
    client.service, before = service, client.service
    before.close()
    assert client.ask("GET", "/healthz").status_code == 200
    answer = client.ask("GET", "/readyz")
    assert (answer.status_code, answer.text) == (503, "The log does not answer.\n")
    assert "logbroker_registry_up 0.0" in client.ask("GET", "/metrics").text


def test_what_was_not_foreseen_is_answered_and_logged(
    client: RegistryClient, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise LookupError("of a defect")

    client.log.catch_up = broken  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        assert status_and_code(client.ask("GET", "/schemas/ids/1")) == (500, 500)
    assert "of a defect" in caplog.text
    assert client.ask("GET", "/subjects").status_code == 200


_SEGMENTS = st.one_of(
    st.sampled_from(
        [
            *("subjects", "versions", "schemas", "ids", "config", "mode", "compatibility", "types"),
            *("latest", "schema", "referencedby", "1", "-1", "0", "s", "", "%00", "%ff", "%2F"),
        ]
    ),
    st.text(max_size=8).map(lambda text: quote(text.encode("utf-8", "replace"), safe="")),
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["AVRO", "FULL", "READWRITE", '"int"', '{"type":"record"}', "[]", "null"]),
)
_DOCUMENTS = st.one_of(
    st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    st.dictionaries(
        st.sampled_from(
            [
                *("schema", "schemaType", "references", "compatibility", "mode", "version", "id"),
                *("metadata", "ruleSet", "name"),
            ]
        ),
        st.recursive(
            _LEAVES,
            lambda inner: st.one_of(
                st.lists(inner, max_size=2),
                st.dictionaries(
                    st.sampled_from(["name", "subject", "version", "type"]), inner, max_size=3
                ),
            ),
            max_leaves=6,
        ),
        max_size=4,
    ),
)
_QUERIES = st.dictionaries(
    st.sampled_from(
        ["deleted", "permanent", "normalize", "offset", "limit", "verbose", "subjectPrefix", "x"]
    ),
    st.text(max_size=6),
    max_size=3,
)


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
    st.lists(_SEGMENTS, max_size=6),
    _QUERIES,
    _DOCUMENTS,
)
def test_no_request_is_answered_with_a_fault_of_the_server(
    method: str, segments: list[str], query: dict[str, str], document: Any
) -> None:
    client = RegistryClient()
    try:
        client.registry.set_compatibility("s", client.registry.compatibility(None))
        text = "&".join(
            f"{name}={quote(value.encode('utf-8', 'replace'))}" for name, value in query.items()
        )
        answer = client.ask(method, f"/{'/'.join(segments)}?{text}", document)
        assert answer.status_code < 500, answer.text
    finally:
        client.service.close()
