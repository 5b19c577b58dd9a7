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

from logbroker.schemas.api import LISTED_CHARS_MAX
from logbroker.schemas.avro_schema import TEXT_BYTES_MAX
from logbroker.schemas.errors import StoreUnavailable
from logbroker.schemas.lookup import ANSWER_BYTES_MAX
from logbroker.schemas.registry import SchemaRegistry
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


class Desk:
    """Asks a service as a client would, one request after the other."""

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
def desk() -> Iterator[Desk]:
    with closing(Desk()) as desk:
        yield desk


def refusal(answer: httpx.Response) -> tuple[int, int]:
    assert answer.headers["content-type"] == CONTENT_TYPE
    document = answer.json()
    assert document.keys() == {"error_code", "message"}
    assert document["message"]
    return answer.status_code, document["error_code"]


def test_the_root_answers_an_empty_object(desk: Desk) -> None:
    answer = desk.ask("GET", "/")
    assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["content-type"] == CONTENT_TYPE


@pytest.mark.parametrize(
    "subject", ["a", "a/b", "a b", "ü%2F", ":.ctx:a", "versions", "..", "a?b#c"]
)
def test_a_subject_may_be_named_by_anything(desk: Desk, subject: str) -> None:
    path = f"/subjects/{quote(subject, safe='')}".replace("/..", "/%2E%2E")
    assert desk.ask("POST", f"{path}/versions", STRING).json() == {"id": 1}
    assert desk.ask("GET", "/subjects").json() == [subject]
    found = desk.ask("GET", f"{path}/versions/latest").json()
    assert found == {"subject": subject, "version": 1, "id": 1, **STRING}
    assert desk.ask("POST", path, STRING).json() == found
    assert desk.ask("PUT", f"/config{path.removeprefix('/subjects')}", {"compatibility": "full"})
    assert desk.registry.compatibility(subject).value == "FULL"
    assert desk.ask("DELETE", path).json() == [1]


def test_a_slash_at_the_end_changes_nothing(desk: Desk) -> None:
    assert desk.ask("GET", "/subjects/").json() == []


def test_lists_come_in_pages(desk: Desk) -> None:
    for name in "abcd":
        desk.register(name, '"string"')
    assert desk.ask("GET", "/subjects?offset=1&limit=2").json() == ["b", "c"]
    assert desk.ask("GET", "/subjects?limit=-1&offset=3").json() == ["d"]
    assert desk.ask("GET", "/schemas/ids/1/subjects?limit=0").json() == []
    assert desk.ask("GET", "/schemas/ids/1/versions?subject=b").json() == [
        {"subject": "b", "version": 1}
    ]
    assert refusal(desk.ask("GET", "/subjects?limit=many")) == (400, 400)
    assert refusal(desk.ask("GET", "/subjects?limit=99999999999999999999")) == (400, 400)


def test_a_schema_is_given_as_itself(desk: Desk) -> None:
    desk.register("s", '"string"')
    for path in ("/schemas/ids/1/schema", "/subjects/s/versions/1/schema"):
        assert desk.ask("GET", path).text == '"string"'


def test_deleted_versions_are_listed_when_asked_for(desk: Desk) -> None:
    for schema in ('"int"', '"long"'):
        desk.register("s", schema)
    desk.ask("DELETE", "/subjects/s/versions/latest")
    assert desk.ask("GET", "/subjects/s/versions").json() == [1]
    assert desk.ask("GET", "/subjects/s/versions?deleted=true").json() == [1, 2]
    assert desk.ask("GET", "/subjects/s/versions?deletedOnly=true").json() == [2]
    assert desk.ask("GET", "/subjects/s/versions/2?deleted=TRUE").json()["id"] == 2
    assert refusal(desk.ask("GET", "/subjects/s/versions/2")) == (404, 40402)
    desk.ask("DELETE", "/subjects/s")
    assert desk.ask("GET", "/subjects/s/versions?deletedOnly=true").json() == [1, 2]
    assert desk.ask("GET", "/subjects?deletedOnly=true").json() == ["s"]


@pytest.mark.parametrize("version", ["0", "-2", "x", "2147483648", "1e3", "", "9" * 5000])
def test_a_version_is_a_number_from_one_on_or_latest(desk: Desk, version: str) -> None:
    desk.register("s", '"string"')
    assert refusal(desk.ask("GET", f"/subjects/s/versions/{version}/schema")) == (422, 42202)


@pytest.mark.parametrize("schema_id", ["0", "-1", "x", "2147483648", "9" * 5000])
def test_an_id_that_nothing_can_have_is_not_found(desk: Desk, schema_id: str) -> None:
    assert refusal(desk.ask("GET", f"/schemas/ids/{schema_id}")) == (404, 40403)


def test_a_compatibility_check_tells_what_is_in_the_way(desk: Desk) -> None:
    desk.register("s", '"int"')
    path = "/compatibility/subjects/s/versions"
    for each in (path, f"{path}/latest", f"{path}/1"):
        assert desk.ask("POST", each, STRING).json() == {"is_compatible": False}
        verbose = desk.ask("POST", f"{each}?verbose=true", STRING).json()
        assert not verbose["is_compatible"]
        assert "int" in verbose["messages"][0]
    nobody = "/compatibility/subjects/nobody/versions"
    assert desk.ask("POST", f"{nobody}/latest", STRING).json() == {"is_compatible": True}
    assert refusal(desk.ask("POST", f"{nobody}/1", STRING)) == (404, 40401)
    assert refusal(desk.ask("POST", f"{nobody}/latest", {"schema": "no"})) == (422, 42201)


def test_levels_are_set_shown_and_taken_away(desk: Desk) -> None:
    assert desk.ask("GET", "/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert refusal(desk.ask("GET", "/config/s")) == (404, 40408)
    by_global = desk.ask("GET", "/config/s?defaultToGlobal=true").json()
    assert by_global == {"compatibilityLevel": "BACKWARD"}
    level = {"compatibility": "FORWARD_TRANSITIVE", "normalize": None}
    assert desk.ask("PUT", "/config/s", level).json() == {"compatibility": "FORWARD_TRANSITIVE"}
    assert desk.ask("GET", "/config/s").json() == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
    deleted = desk.ask("DELETE", "/config/s").json()
    assert deleted == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
    for document in (
        {},
        {"compatibility": 5},
        {"compatibility": "SOME"},
        {"compatibility": "FULL", "alias": "x"},
    ):
        assert refusal(desk.ask("PUT", "/config", document)) == (422, 42203)


def test_all_schemas_are_listed_with_their_places(desk: Desk) -> None:
    used = desk.register("a.b", '{"type":"fixed","name":"Used","size":1}')
    references = [{"name": "Used", "subject": "a.b", "version": 1}]
    desk.ask("PUT", "/config", {"compatibility": "NONE"})
    for schema in ('"int"', '"long"', '"bytes"'):
        desk.register("a.c", schema)
    desk.register("b", '["Used"]', references=references)
    desk.ask("DELETE", "/subjects/a.c/versions/3")

    def listed(query: str = "") -> list[tuple[str, int]]:
        answer = desk.ask("GET", f"/schemas{query}").json()
        return [(each["subject"], each["version"]) for each in answer]

    everything = [("a.b", 1), ("a.c", 1), ("a.c", 2), ("b", 1)]
    assert listed() == everything
    assert listed("?deleted=true") == [*everything[:3], ("a.c", 3), ("b", 1)]
    assert listed("?latestOnly=true") == [("a.b", 1), ("a.c", 2), ("b", 1)]
    assert listed("?latestOnly=true&deleted=true") == [("a.b", 1), ("a.c", 3), ("b", 1)]
    assert listed("?subjectPrefix=a.&offset=1&limit=1") == [("a.c", 1)]
    assert listed("?subjectPrefix=none") == []
    first, *_, last = desk.ask("GET", "/schemas").json()
    assert first == desk.ask("GET", "/subjects/a.b/versions/1").json()
    assert (first["id"], last["references"]) == (used, references)


def test_a_list_of_schemas_that_is_too_long_is_asked_for_in_parts(desk: Desk) -> None:
    doc = "x" * (TEXT_BYTES_MAX - 100)
    many = LISTED_CHARS_MAX // len(doc) + 1
    for number in range(many):
        desk.register(
            f"s{number}", f'{{"type":"fixed","name":"F","size":{number + 1},"doc":"{doc}"}}'
        )
    assert refusal(desk.ask("GET", "/schemas")) == (400, 400)
    assert len(desk.ask("GET", f"/schemas?limit={many - 1}").json()) == many - 1
    assert len(desk.ask("GET", f"/schemas?offset={many}").json()) == 0


def test_who_answers_is_told(desk: Desk) -> None:
    scope = desk.ask("GET", "/v1/metadata/id").json()["scope"]
    assert scope["clusters"]["kafka-cluster"] == "memory"
    assert desk.ask("GET", "/v1/metadata/version").json() == {"version": version("rewind")}


def test_there_is_one_mode(desk: Desk) -> None:
    for path in ("/mode", "/mode/s"):
        assert desk.ask("GET", path).json() == {"mode": "READWRITE"}
        assert desk.ask("PUT", path, {"mode": "READWRITE"}).json() == {"mode": "READWRITE"}
        assert refusal(desk.ask("PUT", path, {"mode": "IMPORT"})) == (422, 42205)
        assert refusal(desk.ask("PUT", path, {"mode": "SOME"})) == (422, 42204)


def test_a_registry_that_only_reads_says_so() -> None:
    with closing(Desk(is_read_only=True)) as desk:
        assert desk.ask("GET", "/mode").json() == {"mode": "READONLY"}
        assert desk.ask("PUT", "/mode", {"mode": "READONLY"}).json() == {"mode": "READONLY"}
        assert refusal(desk.ask("PUT", "/mode", {"mode": "READWRITE"})) == (422, 42205)
        assert refusal(desk.ask("POST", "/subjects/s/versions", STRING)) == (422, 42205)


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
def test_what_cannot_be_registered_is_refused(desk: Desk, document: Any, code: int) -> None:
    assert refusal(desk.ask("POST", "/subjects/s/versions", document)) == (422, code)
    assert desk.ask("GET", "/subjects").json() == []


def test_true_is_no_version_of_a_reference(desk: Desk) -> None:
    desk.register("far", '{"type":"fixed","name":"Far","size":1}')
    references = [{"name": "Far", "subject": "far", "version": True}]
    answer = desk.ask("POST", "/subjects/s/versions", {"schema": '"Far"', "references": references})
    assert refusal(answer) == (422, 42201)


def test_whoever_looks_schemas_up_takes_the_largest_that_is_kept(desk: Desk) -> None:
    frame = '{"type":"int","doc":"%s"}'
    schema_id = desk.register("s", frame % ("\u00fc" * ((TEXT_BYTES_MAX - len(frame) + 2) // 2)))
    answer = desk.ask("GET", f"/schemas/ids/{schema_id}").content
    assert TEXT_BYTES_MAX < len(answer) < ANSWER_BYTES_MAX


def test_what_javas_client_writes_for_nothing_is_nothing(desk: Desk) -> None:
    nothing: dict[str, Any] = {
        "version": 0,
        "id": -1,
        "metadata": None,
        "ruleSet": None,
        "references": [],
    }
    assert desk.register("s", '"string"', schemaType="AVRO", **nothing) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000, b"9" * 5_000])
def test_a_body_is_a_json_object(desk: Desk, body: bytes) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = desk.ask("POST", "/subjects/s", content=body, headers=headers)
    assert refusal(answer) == (400, 400)


def test_a_body_is_of_a_type_that_no_page_sends_unasked(desk: Desk) -> None:
    """What a page in a browser may send to anybody: the three types of forms, and none."""
    content = json.dumps(STRING).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind} if kind else {}
        answer = desk.ask("POST", "/subjects/s/versions", content=content, headers=headers)
        assert refusal(answer) == (415, 415)
        assert repr(kind) in answer.json()["message"]
    for kind in ALLOWED_TYPES:
        headers = {"content-type": kind}
        assert desk.ask("POST", "/subjects/s/versions", content=content, headers=headers)
    assert desk.ask("GET", "/subjects").json() == ["s"]


def test_who_changed_what_is_in_the_log(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk.register("a b", '"string"')
    desk.ask("DELETE", "/subjects/none?permanent=true")
    # These only ask.
    desk.ask("POST", "/subjects/a%20b", STRING)
    desk.ask("POST", "/compatibility/subjects/a%20b/versions/latest", STRING)
    desk.ask("GET", "/subjects")
    said = [record.getMessage() for record in caplog.records if record.name.endswith("service")]
    assert said == [
        "change method=POST path=/subjects/a%20b/versions status=200 client=127.0.0.1",
        "change method=DELETE path=/subjects/none?permanent=true status=404 client=127.0.0.1",
    ]


def test_what_is_no_route_is_refused(desk: Desk) -> None:
    for method, path in (("GET", "/nothing"), ("GET", "/subjects/a/b/c/d/e")):
        assert refusal(desk.ask(method, path)) == (404, 404)
    answer = desk.ask("PATCH", "/config")
    assert refusal(answer) == (405, 405)
    assert answer.headers["allow"] == "DELETE, GET, PUT"


def test_large_requests_are_refused(desk: Desk) -> None:
    assert refusal(desk.ask("GET", "/subjects?a=" + "x" * URL_BYTES_MAX)) == (414, 414)
    large = {"x": "y" * HEADERS_BYTES_MAX}
    assert refusal(desk.ask("GET", "/subjects", headers=large)) == (431, 431)
    typed = {"content-type": CONTENT_TYPE}
    body = b" " * (BODY_BYTES_MAX + 1)
    assert refusal(desk.ask("POST", "/subjects/s", content=body, headers=typed)) == (413, 413)
    many = "&".join(f"a{number}=1" for number in range(100))
    assert refusal(desk.ask("GET", f"/subjects?{many}")) == (400, 400)


def test_a_body_that_does_not_announce_its_size_is_bounded_too(desk: Desk) -> None:
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
    asyncio.run(desk.service(scope, receive, send))
    assert sent[0]["status"] == 413
    assert len(pieces) == 10 - BODY_BYTES_MAX // 2**20 - 1


def test_more_requests_than_can_wait_are_told_to_come_back(desk: Desk) -> None:
    may_go = threading.Event()
    desk.log.catch_up = may_go.wait  # type: ignore[assignment,method-assign]

    async def ask_many() -> list[int]:
        # An unknown id is looked for in the log, which does not answer now.
        asked = [
            asyncio.ensure_future(desk._ask("GET", "/schemas/ids/1")) for _ in range(UNDER_WAY_MAX)
        ]
        try:
            newest = desk.service._newest
            await until_async(lambda: newest._under_way == UNDER_WAY_MAX, "all wait")
            assert refusal(await desk._ask("GET", "/schemas/ids/1")) == (503, 503)
        finally:
            may_go.set()
        return [(await each).status_code for each in asked]

    assert asyncio.run(ask_many()) == [404] * UNDER_WAY_MAX
    assert desk.ask("GET", "/schemas/ids/1").status_code == 404


def test_what_was_read_is_told_while_others_wait_for_the_log(desk: Desk) -> None:
    desk.register("s", '"string"')
    may_go = threading.Event()
    desk.log.catch_up = may_go.wait  # type: ignore[assignment,method-assign]
    desk.log.append = lambda decided: may_go.wait()  # type: ignore[method-assign]
    crowd = CHANGE_THREADS + NEWEST_THREADS

    async def ask_known() -> list[int]:
        posted = {"content": json.dumps(STRING), "headers": {"content-type": CONTENT_TYPE}}
        waiting = [
            asyncio.ensure_future(each)
            for number in range(crowd)
            for each in (
                desk._ask("GET", "/schemas/ids/2"),
                desk._ask("POST", f"/subjects/new-{number}/versions", **posted),
            )
        ]
        desks = (desk.service._newest, desk.service._changes)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await until_async(lambda: all(d._under_way == crowd for d in desks), "all wait")
                known = [
                    await desk._ask("GET", "/schemas/ids/1"),
                    await desk._ask("POST", "/subjects/s", **posted),
                    await desk._ask("POST", "/compatibility/subjects/s/versions", **posted),
                ]
                assert not any(each.done() for each in waiting)
        finally:
            may_go.set()
        await asyncio.gather(*waiting)
        return [each.status_code for each in known]

    assert asyncio.run(ask_known()) == [200, 200, 200]


def test_requests_are_counted_by_route_and_status(desk: Desk) -> None:
    desk.register("s", '"string"')
    desk.ask("GET", "/subjects/s/versions/9")
    desk.ask("GET", "/nothing")
    text = desk.ask("GET", "/metrics").text
    versions = "/subjects/{subject}/versions"
    for labels in (
        f'method="POST",route="{versions}",status="200"',
        f'method="GET",route="{versions}/{{version}}",status="404"',
        'method="other",route="other",status="404"',
    ):
        assert f"logbroker_registry_requests_total{{{labels}}} 1.0" in text
    assert "logbroker_registry_subjects 1.0" in text
    assert "logbroker_registry_up 1.0" in text


def test_a_log_that_is_away_is_told_by_probes_and_metrics(desk: Desk) -> None:
    def away() -> None:
        raise StoreUnavailable("The log does not answer.")

    service = RegistryService(desk.registry, away)
    desk.service, before = service, desk.service
    before.close()
    assert desk.ask("GET", "/healthz").status_code == 200
    answer = desk.ask("GET", "/readyz")
    assert (answer.status_code, answer.text) == (503, "The log does not answer.\n")
    assert "logbroker_registry_up 0.0" in desk.ask("GET", "/metrics").text


def test_what_was_not_foreseen_is_answered_and_logged(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise LookupError("of a defect")

    desk.log.catch_up = broken  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        assert refusal(desk.ask("GET", "/schemas/ids/1")) == (500, 500)
    assert "of a defect" in caplog.text
    assert desk.ask("GET", "/subjects").status_code == 200


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
    desk = Desk()
    try:
        desk.registry.set_compatibility("s", desk.registry.compatibility(None))
        text = "&".join(
            f"{name}={quote(value.encode('utf-8', 'replace'))}" for name, value in query.items()
        )
        answer = desk.ask(method, f"/{'/'.join(segments)}?{text}", document)
        assert answer.status_code < 500, answer.text
    finally:
        desk.service.close()
