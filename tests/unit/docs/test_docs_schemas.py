"""The page about schemas says what the code does, row by row."""

import re
from inspect import getsource

import click

from logbroker.bounded_http import HEAD_S, UNREAD_S
from logbroker.cli.registry import registry
from logbroker.schemas import errors
from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.decoding_cost import DECIMAL_BYTES_MAX, DEPTH_MAX, EMPTY_FIELDS_MAX
from logbroker.schemas.avro.json_values import _SMALL_EXPONENT, JSON_BYTES_MAX
from logbroker.schemas.avro.schema import ALL_TEXT_BYTES_MAX, REFERENCES_MAX, TEXT_BYTES_MAX
from logbroker.schemas.decoder import VALUE_BYTES_MAX
from logbroker.schemas.domain.decisions import (
    KEPT_TEXT_BYTES_MAX,
    NAMES_MAX,
    SUBJECT_BYTES_MAX,
    SUBJECT_TEXT_BYTES_MAX,
    VERSIONS_MAX,
)
from logbroker.schemas.lookup import AGAIN_S, ID_MAX, UNKNOWN_S
from logbroker.schemas.lookup import REFERENCES_MAX as LOOKUP_REFERENCES_MAX
from logbroker.schemas.rest import api, request
from logbroker.schemas.rest import errors as rest_errors
from logbroker.schemas.rest.api import ROUTES
from logbroker.schemas.server import RegistryHttp
from logbroker.schemas.service import (
    ALLOWED_TYPES,
    BODY_BYTES_MAX,
    BODY_S,
    HEADERS_BYTES_MAX,
    UNDER_WAY_MAX,
    URL_BYTES_MAX,
    RegistryService,
)
from tests.unit.docs.doc_pages import page, section, table

SCHEMAS_PAGE = page("schemas.md")

MIB = 2**20


def test_every_option_is_documented_with_its_variable_and_default() -> None:
    documented = {
        row["option"]: (row["variable"], row["default"])
        for row in table(SCHEMAS_PAGE, "## Options of `logbroker registry`")
    }
    assert documented == {
        option.opts[0]: (str(option.envvar or "none"), default_of(option))
        for option in registry.params
        if isinstance(option, click.Option)
    }


def default_of(option: click.Option) -> str:
    if option.is_flag:
        return "off"
    default = option.to_info_dict()["default"]
    return "none" if default is None else str(default)


def test_every_route_is_documented() -> None:
    documented = [row["route"] for row in table(SCHEMAS_PAGE, "## Routes")]
    operations = [f"GET /{name}" for name in ("healthz", "readyz", "metrics")]
    assert documented == [f"{route.method} {route.path}" for route in ROUTES] + operations
    assert set(operations) == {
        f"{route.method} {route.path}" for route in RegistryService._operations(_unused_service())
    }


def _unused_service() -> RegistryService:
    return object.__new__(RegistryService)


def test_every_code_is_documented() -> None:
    documented = {
        int(code) for row in table(SCHEMAS_PAGE, "## Routes", 1) for code in row["code"].split(", ")
    }
    found = {
        each.__dict__["code"]
        for module in (errors, rest_errors)
        for each in vars(module).values()
        if isinstance(each, type) and isinstance(each.__dict__.get("code"), int)
    }
    assert documented == found


def test_every_level_is_documented() -> None:
    documented = {
        level
        for row in table(SCHEMAS_PAGE, "## Compatibility")
        for level in row["level"].split(", ")
    }
    assert documented == {each.value for each in Compatibility}


def test_the_limits_are_those_of_the_code() -> None:
    documented = limits("## Limits")
    text, all_text = f"{TEXT_BYTES_MAX:,} bytes", f"{ALL_TEXT_BYTES_MAX:,}"
    assert documented["a schema's text"] == f"{text}; with all that it refers to, {all_text}"
    assert documented["a subject's name"].startswith(f"{SUBJECT_BYTES_MAX:,} bytes")
    names = "subjects that have versions, and those that have levels, together"
    assert documented[names] == f"{NAMES_MAX:,}"
    texts = f"with texts of {SUBJECT_TEXT_BYTES_MAX:,} bytes together"
    assert documented["versions of a subject"] == f"{VERSIONS_MAX:,}; {texts}"
    kept = f"{KEPT_TEXT_BYTES_MAX:,} bytes"
    assert documented["all schemas together, deleted ones too"] == kept
    assert documented["schemas that one refers to, with what they refer to"] == str(REFERENCES_MAX)
    body = f"{BODY_BYTES_MAX // MIB} MiB, within {BODY_S:g} s; of one of the types "
    assert documented["a request's body"] == body + ", ".join(ALLOWED_TYPES)
    assert documented["the URL"] == f"{URL_BYTES_MAX // 1024} KiB"
    assert documented["the headers"] == f"{HEADERS_BYTES_MAX // 1024} KiB, within {HEAD_S:g} s"
    assert documented["connections of one process"] == f"{RegistryHttp.connections_max}"
    assert documented["time in which a client reads nothing of a response"] == f"{UNREAD_S:g} s"
    assert documented["requests that wait for a thread"].startswith(
        f"{UNDER_WAY_MAX} each: look-ups"
    )


def test_the_limits_of_reads_are_documented() -> None:
    assert limits("## Reading") == {
        "a value": f"{VALUE_BYTES_MAX // MIB} MiB",
        "its JSON": f"{JSON_BYTES_MAX // MIB} MiB",
        "records inside each other, of a type that contains itself": str(DEPTH_MAX),
        "a decimal": f"{DECIMAL_BYTES_MAX} bytes",
        "fields of a schema that take no bytes": str(EMPTY_FIELDS_MAX),
        "items of an array that take no bytes": "none",
        "other schemas that one needs": str(LOOKUP_REFERENCES_MAX),
    }
    reading = section(SCHEMAS_PAGE, "## Reading")
    assert f"more than {_SMALL_EXPONENT:,} digits" in reading
    assert f"an unknown id, for {UNKNOWN_S:g} s" in reading
    assert f"ids above {ID_MAX:,}\nare rejected" in reading
    assert f"asked for again, {AGAIN_S:g} s after" in reading


def limits(heading: str) -> dict[str, str]:
    return {row["what"]: row["limit"] for row in table(SCHEMAS_PAGE, heading)}


def test_the_documented_query_parameters_are_read() -> None:
    """Each name of a query stands in the code that reads requests, and no other does."""
    documented = {
        name
        for row in table(SCHEMAS_PAGE, "## Routes")
        for name in filter(None, row["query"].split(", "))
    }
    assert documented == _names_read()


def _names_read() -> set[str]:
    text = getsource(api) + getsource(request)
    return set(re.findall(r'(?:flag|_number|query\.get)\("(\w+)"', text))
