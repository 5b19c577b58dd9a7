"""Look up schemas by id in a schema registry, and cache them permanently."""

import json
import math
import ssl
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx

from logbroker.errors import ConfigurationError
from logbroker.schemas.reading_errors import (
    SchemaRegistryUnavailable,
    UndecodableValue,
    UnknownSchema,
)

ANSWER_BYTES_MAX: Final = 4 * 2**20
"""Size of a response, in which a byte of a schema takes three at most.

A schema accepted by our registry always fits (`avro_schema.TEXT_BYTES_MAX`): a response above the
limit counts as a registry failure, which callers retry forever.
"""

REFERENCES_MAX: Final = 200
"""Schemas that one schema may need, directly or indirectly."""

QUOTED_MAX: Final = 7_000
"""Characters of a subject in a URL; servers accept eight thousand in total."""

ID_MAX: Final = 2**31 - 1
"""Confluent's registry reads ids as Java integers and does not recognize larger ones.

Its response to a larger id looks like a registry failure, which callers retry forever.
"""

UNKNOWN_S: Final = 10.0
"""How long an unknown id is cached before the registry is asked again.

Not used when the caller passes the time of the read: ids are dense, so a corrupt value may have
named the id that is assigned next.
"""

AGAIN_S: Final = 0.5
"""The shortest time between two requests for the same unknown id.

Corrupt values that repeat an id cause two requests a second, and delay later values no longer than
this.
"""

UNKNOWN_MAX: Final = 10_000
"""Unknown ids that are cached: corrupt values may each name a new one."""


class FoundSchema(NamedTuple):
    """A schema's text and the texts it references, each after those that it needs itself."""

    text: str
    referenced: tuple[str, ...]


class SchemaLookup:
    """Schemas of a registry by id; thread-safe, with one request at a time per id.

    The URL may contain a user and a password (`http://user:password@host:8081`): they are sent as
    basic authentication, and appear in no message.
    """

    def __init__(self, registry_url: str, *, timeout_s: float = 5.0) -> None:
        url = _parsed(registry_url)
        self._base = str(url.copy_with(userinfo=b"")).rstrip("/")
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            auth=(url.username, url.password) if url.userinfo else None,
            timeout=timeout_s,
            # A compressed response could be much longer than the bytes received.
            headers={"accept-encoding": "identity"},
            # Proxies of the environment are ignored; its certificate files are used.
            trust_env=False,
            verify=_trust(url),
        )
        self._lock = threading.Lock()
        self._found: dict[int, FoundSchema] = {}
        # Ids that were unknown, with the time of the request.
        self._unknown_s: dict[int, float] = {}
        self._asked: dict[int, Future[FoundSchema]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def is_settled(self, schema_id: int, read_s: float | None = None) -> bool:
        """Whether `schema` returns or raises without a request to the registry."""
        return schema_id in self._found or self._is_unknown(schema_id, read_s)

    def schema(self, schema_id: int, read_s: float | None = None) -> FoundSchema:
        """Return the schema of an id; `read_s` is when the value was read, by `time.monotonic`.

        A writer registers its schema before it writes a value. So an id that is unknown in a
        request after `read_s` stays unknown for this value. Ids that were unknown before are
        requested again, after `AGAIN_S`.

        Raises:
            SchemaRegistryUnavailable: the registry is unreachable or sent no valid response.
            UnknownSchema: it has no such schema (without `read_s`, as of the last `UNKNOWN_S`), or
                the id is 0 or above `ID_MAX`.
            UndecodableValue: the schema is not Avro, or a reference of it is missing.
        """
        found = self._found.get(schema_id)
        return found if found is not None else self._asked_once(schema_id, read_s)

    def _asked_once(self, schema_id: int, read_s: float | None) -> FoundSchema:
        while True:
            with self._lock:
                if schema_id in self._found:
                    return self._found[schema_id]
                if self._is_unknown(schema_id, read_s):
                    raise _unknown(schema_id)
                question = self._asked.get(schema_id)
                is_mine = question is None
                if question is None:
                    question = self._asked[schema_id] = Future()
            if is_mine:
                self._ask(schema_id, question)
                return question.result()
            # The request of another thread may be older than the value.
            with suppress(UnknownSchema):
                return question.result()

    def _ask(self, schema_id: int, question: "Future[FoundSchema]") -> None:
        asked_s = max(time.monotonic(), self._unknown_s.get(schema_id, -math.inf) + AGAIN_S)
        try:
            time.sleep(max(0.0, asked_s - time.monotonic()))
            found = self._schema(schema_id)
        except BaseException as error:
            # Any failure must reach the threads that wait for the same response.
            self._remember(schema_id, error, asked_s)
            question.set_exception(error)
        else:
            self._remember(schema_id, found, asked_s)
            question.set_result(found)

    def _remember(
        self, schema_id: int, answer: FoundSchema | BaseException, asked_s: float
    ) -> None:
        with self._lock:
            del self._asked[schema_id]
            if isinstance(answer, FoundSchema):
                self._found[schema_id] = answer
            elif isinstance(answer, UnknownSchema):
                self._unknown_s.pop(schema_id, None)
                while len(self._unknown_s) >= UNKNOWN_MAX:
                    del self._unknown_s[next(iter(self._unknown_s))]
                self._unknown_s[schema_id] = asked_s

    def _is_unknown(self, schema_id: int, read_s: float | None) -> bool:
        if not 0 < schema_id <= ID_MAX:
            return True
        counts_from_s = time.monotonic() - UNKNOWN_S if read_s is None else read_s
        return self._unknown_s.get(schema_id, -math.inf) >= counts_from_s

    def _schema(self, schema_id: int) -> FoundSchema:
        document = self._document(f"/schemas/ids/{schema_id}")
        if document is None:
            raise _unknown(schema_id)
        texts: dict[tuple[str, int], str] = {}
        self._collect(document, texts, set())
        return FoundSchema(_avro_text(document), tuple(texts.values()))

    def _collect(
        self,
        document: dict[str, Any],
        texts: dict[tuple[str, int], str],
        seen: set[tuple[str, int]],
    ) -> None:
        """Add the texts that a schema references to `texts`, the innermost first."""
        for subject_version in _subject_versions(document):
            if subject_version in seen:
                continue
            seen.add(subject_version)
            if len(seen) > REFERENCES_MAX:
                raise UndecodableValue(f"a schema needs more than {REFERENCES_MAX} others")
            referenced = self._referenced(*subject_version)
            self._collect(referenced, texts, seen)
            texts[subject_version] = _avro_text(referenced)

    def _referenced(self, subject: str, version: int) -> dict[str, Any]:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        document = self._document(path)
        if document is None:
            raise UndecodableValue(
                f"version {version} of {subject!r} is deleted, but a schema references it"
            )
        return document

    def _document(self, path: str) -> dict[str, Any] | None:
        """The registry's response; None if the registry reports that the item does not exist."""
        status, body = self._answer(path)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise SchemaRegistryUnavailable(
                f"{self._base} responded with {status} and no JSON object"
            )
        if status == httpx.codes.OK:
            return document
        code = document.get("error_code")
        # A 404 of a proxy is not a response of the registry.
        if status == httpx.codes.NOT_FOUND and code in _NOT_THERE:
            return None
        raise SchemaRegistryUnavailable(f"{self._base} responded with {status}, error code {code}")

    def _answer(self, path: str) -> tuple[int, bytes]:
        deadline_s = time.monotonic() + self._timeout_s
        body = b""
        try:
            with self._client.stream("GET", self._base + path) as response:
                for piece in response.iter_raw():
                    body += piece
                    self._check(len(body), deadline_s)
                return response.status_code, body
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise SchemaRegistryUnavailable(f"{self._base} is unreachable: {reason}") from error

    def _check(self, size: int, deadline_s: float) -> None:
        if size > ANSWER_BYTES_MAX:
            raise SchemaRegistryUnavailable(
                f"{self._base} responded with more than {ANSWER_BYTES_MAX} bytes"
            )
        # The client's own limits apply to each piece of the response.
        if time.monotonic() > deadline_s:
            raise SchemaRegistryUnavailable(
                f"{self._base} did not respond within {self._timeout_s:g} s"
            )


_NOT_THERE: Final = frozenset({40401, 40402, 40403})


def _parsed(registry_url: str) -> httpx.URL:
    try:
        url = httpx.URL(registry_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        # The URL may contain a password, so the message does not repeat it.
        raise ConfigurationError("the schema registry's URL must be like http://HOST:PORT")
    return url


def _trust(url: httpx.URL) -> ssl.SSLContext:
    # To load the authorities takes longer than a lookup.
    if url.scheme == "https":
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _unknown(schema_id: int) -> UnknownSchema:
    return UnknownSchema(f"no schema has id {schema_id}")


def _avro_text(document: dict[str, Any]) -> str:
    kind = document.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UndecodableValue(f"its schema is {kind!s:.40}, not AVRO")
    text = document.get("schema")
    if not isinstance(text, str):
        raise SchemaRegistryUnavailable("the registry responded without a schema")
    return text


def _quotable(subject: object) -> str:
    """A subject, percent-encoded for a URL.

    Raises:
        ValueError: it is too long, or not valid UTF-8.
    """
    if len(quote(str(subject), safe="")) > QUOTED_MAX:
        raise ValueError("too long for a URL")
    return str(subject)


def _subject_versions(document: dict[str, Any]) -> list[tuple[str, int]]:
    references = document.get("references") or []
    try:
        return [(_quotable(each["subject"]), int(each["version"])) for each in references]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise SchemaRegistryUnavailable("the registry responded with invalid references") from error
