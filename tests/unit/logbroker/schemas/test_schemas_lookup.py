"""Look-ups at a registry that is slow, wrong, talkative, guarded or gone."""

import base64
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logbroker.errors import ConfigurationError
from logbroker.schemas import lookup
from logbroker.schemas.lookup import (
    AGAIN_S,
    ANSWER_BYTES_MAX,
    ID_MAX,
    REFERENCES_MAX,
    FoundSchema,
    SchemaLookup,
)
from logbroker.schemas.reading_errors import (
    SchemaRegistryUnavailable,
    UndecodableValue,
    UnknownSchema,
)
from tests.support.processes.waiting import until
from tests.support.schemas.registry_stub import RegistryStub

TIMEOUT_S = 30.0


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


@pytest.fixture
def asked(registry: RegistryStub) -> Iterator[SchemaLookup]:
    found = SchemaLookup(registry.url, timeout_s=TIMEOUT_S)
    yield found
    found.close()


def test_threads_that_ask_for_one_id_share_the_question(
    registry: RegistryStub, asked: SchemaLookup
) -> None:
    schema_id = registry.add('"string"')
    registry.gate.clear()
    began = threading.Barrier(8)

    def ask() -> FoundSchema:
        began.wait()
        return asked.schema(schema_id)

    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(ask) for _ in range(8)]
        until(lambda: registry.asked, "the registry is asked")
        registry.gate.set()
        assert {each.result() for each in answers} == {FoundSchema('"string"', ())}
    assert len(registry.asked) == 1


def test_threads_that_share_a_question_share_its_failure(
    registry: RegistryStub, asked: SchemaLookup
) -> None:
    registry.answer("/schemas/ids/1", 500, {"error_code": 50001, "message": "no"})
    registry.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(asked.schema, 1) for _ in range(4)]
        until(lambda: registry.asked, "the registry is asked")
        registry.gate.set()
        for each in answers:
            with pytest.raises(SchemaRegistryUnavailable, match="500, error code 50001"):
                each.result()
    registry.answer("/schemas/ids/1", 200, {"schema": '"int"'})
    assert asked.schema(1).text == '"int"'


def test_an_unknown_id_is_asked_for_again_after_a_while(
    registry: RegistryStub, asked: SchemaLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "UNKNOWN_S", 0.0)
    with pytest.raises(UnknownSchema):
        asked.schema(1)
    assert not asked.is_settled(1)
    assert registry.add('"int"') == 1
    assert asked.schema(1).text == '"int"'


def test_no_answer_from_before_a_value_was_read_makes_its_id_unknown(
    registry: RegistryStub, asked: SchemaLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "AGAIN_S", 0.0)
    early_s = time.monotonic()
    with pytest.raises(UnknownSchema):
        asked.schema(1, early_s)
    assert registry.add('"int"') == 1
    # One that had been read by then could not have been written with this schema.
    assert asked.is_settled(1, early_s)
    with pytest.raises(UnknownSchema):
        asked.schema(1, early_s)
    late_s = time.monotonic()
    assert not asked.is_settled(1, late_s)
    assert asked.schema(1, late_s).text == '"int"'


def test_a_question_that_is_older_than_a_value_is_not_shared_with_it(
    registry: RegistryStub, asked: SchemaLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "AGAIN_S", 0.0)
    registry.gate.clear()
    began = threading.Barrier(5)

    def ask(read_s: float) -> None:
        began.wait()
        with pytest.raises(UnknownSchema):
            asked.schema(1, read_s)

    with ThreadPoolExecutor(5) as threads:
        early = threads.submit(asked.schema, 1)
        until(lambda: registry.asked, "the registry is asked")
        late = [threads.submit(ask, time.monotonic()) for _ in range(4)]
        began.wait()
        registry.gate.set()
        assert isinstance(early.exception(), UnknownSchema)
        for each in late:
            each.result()
    assert len(registry.asked) == 2


def test_values_that_name_an_unknown_id_again_and_again_make_few_questions(
    asked: SchemaLookup,
) -> None:
    """A machine that is slow only takes longer."""
    start_s = time.monotonic()
    for _ in range(2):
        with pytest.raises(UnknownSchema):
            asked.schema(1, time.monotonic())
    assert time.monotonic() - start_s >= AGAIN_S


def test_unknown_ids_are_remembered_within_bounds(
    registry: RegistryStub, asked: SchemaLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "UNKNOWN_MAX", 3)
    for schema_id in range(1, 6):
        with pytest.raises(UnknownSchema):
            asked.schema(schema_id)
    assert [asked.is_settled(each) for each in range(1, 6)] == [False, False, True, True, True]


@pytest.mark.parametrize("schema_id", [0, 2**31, 2**32 - 1])
def test_an_id_that_no_registry_gives_is_unknown_without_a_question(
    registry: RegistryStub, asked: SchemaLookup, schema_id: int
) -> None:
    """Confluent's registry would answer as if it had no such address."""
    registry.answer(f"/schemas/ids/{schema_id}", 404, {"error_code": 404, "message": "HTTP 404"})
    assert asked.is_settled(schema_id)
    with pytest.raises(UnknownSchema, match=f"id {schema_id}"):
        asked.schema(schema_id)
    assert not registry.asked


def test_the_largest_id_is_asked_for(registry: RegistryStub, asked: SchemaLookup) -> None:
    registry.answer(f"/schemas/ids/{ID_MAX}", 200, {"schema": '"int"'})
    assert asked.schema(ID_MAX).text == '"int"'


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (404, b"<html>nothing here</html>"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (200, b"not JSON"),
        (200, b"[" * 100_000),
        (200, []),
        (200, {"text": "no schema"}),
        (200, {"schema": 5}),
        (200, {"schema": "x", "references": 5}),
        (200, {"schema": "x", "references": [{"name": "y"}]}),
        (200, {"schema": "x", "references": [{"subject": "\ud800", "version": 1}]}),
        (200, {"schema": "x", "references": [{"subject": "y" * 100_000, "version": 1}]}),
        (200, {"schema": "x", "references": [{"subject": "y", "version": float("inf")}]}),
        (301, {}),
        (401, {"error_code": 401, "message": "who are you"}),
        (503, b""),
        (200, b"x" * (ANSWER_BYTES_MAX + 1)),
    ],
)
def test_an_invalid_response_is_retryable(
    registry: RegistryStub, asked: SchemaLookup, status: int, document: Any
) -> None:
    registry.answer("/schemas/ids/1", status, document)
    with pytest.raises(SchemaRegistryUnavailable):
        asked.schema(1)
    assert not asked.is_settled(1)
    registry.answer("/schemas/ids/1", 200, {"schema": '"int"'})
    assert asked.schema(1).text == '"int"'


def test_a_registry_that_does_not_answer_in_time_is_given_up(registry: RegistryStub) -> None:
    registry.gate.clear()
    impatient = SchemaLookup(registry.url, timeout_s=0.05)
    with pytest.raises(SchemaRegistryUnavailable, match="is unreachable"):
        impatient.schema(1)
    impatient.close()


def test_an_answer_that_drips_is_given_up_as_a_whole(registry: RegistryStub) -> None:
    """Each piece comes in time; all of them together do not."""
    registry.answer("/schemas/ids/1", 200, {"schema": "x" * 1_000_000})
    impatient = SchemaLookup(registry.url, timeout_s=TIMEOUT_S)
    impatient._timeout_s = -1.0
    with pytest.raises(SchemaRegistryUnavailable, match="did not respond"):
        impatient.schema(1)
    impatient.close()


def test_user_and_password_of_the_url_go_out_and_into_no_message(registry: RegistryStub) -> None:
    schema_id = registry.add('"int"')
    guarded = SchemaLookup(f"http://me:s%40cret@{registry.address}/", timeout_s=TIMEOUT_S)
    assert guarded.schema(schema_id).text == '"int"'
    sent = registry.headers[0]["authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"me:s@cret"
    registry.answer("/schemas/ids/7", 403, {"error_code": 403})
    registry.answer("/schemas/ids/8", 200, b"nonsense")
    for schema_id in (7, 8):
        with pytest.raises(SchemaRegistryUnavailable) as error:
            guarded.schema(schema_id)
        assert "cret" not in str(error.value)
    registry.stop()
    with pytest.raises(SchemaRegistryUnavailable) as error:
        guarded.schema(9)
    assert "cret" not in str(error.value)
    assert registry.address in str(error.value)
    guarded.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8081",
        "ftp://host",
        "http://",
        "http://host?x=secret",
        "http://me:secret@host:x",
        "\0",
    ],
)
def test_an_invalid_url_is_rejected_without_its_text(url: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        SchemaLookup(url, timeout_s=TIMEOUT_S)
    assert "secret" not in str(error.value)


def test_a_path_in_the_url_is_kept(registry: RegistryStub) -> None:
    registry.answer("/behind/schemas/ids/1", 200, {"schema": '"int"'})
    found = SchemaLookup(f"{registry.url}/behind/", timeout_s=TIMEOUT_S)
    assert found.schema(1).text == '"int"'
    found.close()


def test_each_referenced_schema_comes_once_and_after_what_it_needs(
    registry: RegistryStub, asked: SchemaLookup
) -> None:
    registry.register("base", 1, "base")
    registry.register("left", 1, "left", [("base", 1)])
    registry.register("right", 2, "right", [("base", 1)])
    schema_id = registry.add("top", [("left", 1), ("right", 2), ("left", 1)])
    assert asked.schema(schema_id) == FoundSchema("top", ("base", "left", "right"))
    assert len(registry.asked) == 4


def test_schemas_that_refer_to_each_other_for_ever_come_to_an_end(
    registry: RegistryStub, asked: SchemaLookup
) -> None:
    registry.register("egg", 1, "egg", [("hen", 1)])
    registry.register("hen", 1, "hen", [("egg", 1)])
    assert set(asked.schema(registry.add("top", [("egg", 1)])).referenced) == {"egg", "hen"}
    for number in range(REFERENCES_MAX + 1):
        registry.register("chain", number, "x", [("chain", number + 1)])
    with pytest.raises(UndecodableValue, match="more than"):
        asked.schema(registry.add("top", [("chain", 0)]))


def test_a_reference_that_is_gone_will_never_be_read(
    registry: RegistryStub, asked: SchemaLookup
) -> None:
    with pytest.raises(UndecodableValue, match="is deleted"):
        asked.schema(registry.add("top", [("nowhere", 1)]))
