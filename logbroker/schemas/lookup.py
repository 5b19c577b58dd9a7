"""Schemas by id, asked of a schema registry once and kept for ever."""

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
from logbroker.schemas.reading_errors import RegistryUnavailable, UndecodableValue, UnknownSchema

ANSWER_BYTES_MAX: Final = 4 * 2**20
"""Of one answer of the registry, in which a byte of a schema takes three at most.

A schema that our registry keeps has to fit (`avro_schema.TEXT_BYTES_MAX`): whoever waits for a
registry would wait for ever for one that does not.
"""

REFERENCES_MAX: Final = 200
"""Schemas that one schema may need, itself and through others."""

QUOTED_MAX: Final = 7_000
"""Characters of a subject in a URL, of which servers take eight thousand in all."""

ID_MAX: Final = 2**31 - 1
"""Confluent's registry reads an id as a Java integer, and takes a larger one for another address.

Whoever takes its answer to that for a registry that is away asks again for ever.
"""

UNKNOWN_S: Final = 10.0
"""How long an id that no schema has is taken as unknown before the registry is asked again.

Not for who tells when a value was read: ids are dense, so garbage may have named the one that is
given next.
"""

AGAIN_S: Final = 0.5
"""How long after one question for an id that was unknown the next one waits.

Garbage that names it again and again costs two requests a second, and what comes behind it waits
no longer than this.
"""

UNKNOWN_MAX: Final = 10_000
"""Unknown ids that are remembered: values full of garbage name a new one each."""


class FoundSchema(NamedTuple):
    """A schema's text, and the texts it refers to, each after those that it needs itself."""

    text: str
    referenced: tuple[str, ...]


class SchemaLookup:
    """What a registry says of schema ids; safe for threads, one question at a time for one id.

    The URL may name a user and a password (`http://user:password@host:8081`): they go out as
    basic authentication, and into no message.
    """

    def __init__(self, registry_url: str, *, timeout_s: float = 5.0) -> None:
        url = _parsed(registry_url)
        self._base = str(url.copy_with(userinfo=b"")).rstrip("/")
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            auth=(url.username, url.password) if url.userinfo else None,
            timeout=timeout_s,
            # Compressed, an answer could be much longer than its bytes.
            headers={"accept-encoding": "identity"},
            # No proxies of the environment; the files of certificates that it names still count.
            trust_env=False,
            verify=ssl.create_default_context(),
        )
        self._lock = threading.Lock()
        self._found: dict[int, FoundSchema] = {}
        # Ids that no schema had when they were asked for, no earlier than this.
        self._unknown_s: dict[int, float] = {}
        self._asked: dict[int, Future[FoundSchema]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def is_settled(self, schema_id: int, read_s: float | None = None) -> bool:
        """Whether `schema` would answer without asking the registry."""
        return schema_id in self._found or self._is_unknown(schema_id, read_s)

    def schema(self, schema_id: int, read_s: float | None = None) -> FoundSchema:
        """The schema of an id, which a value names that was read at `read_s` of `time.monotonic`.

        Whoever writes a value has registered its schema before: an id that is unknown to a
        question after `read_s` is one for ever, for this value. Of ids that were unknown before,
        one is asked for again, after `AGAIN_S`.

        Raises:
            RegistryUnavailable: the registry does not answer.
            UnknownSchema: it has no such schema; without `read_s`, also if it had none within the
                last `UNKNOWN_S`. Or the id is 0 or above `ID_MAX`.
            UndecodableValue: it has one that is not Avro, or that nobody can put together.
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
            # Another's question may be older than the value.
            with suppress(UnknownSchema):
                return question.result()

    def _ask(self, schema_id: int, question: "Future[FoundSchema]") -> None:
        asked_s = max(time.monotonic(), self._unknown_s.get(schema_id, -math.inf) + AGAIN_S)
        try:
            time.sleep(max(0.0, asked_s - time.monotonic()))
            found = self._schema(schema_id)
        except BaseException as error:
            # Whatever it is, those who wait for the same answer must not wait for ever.
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
        """Add what a schema refers to to `texts`, the innermost first."""
        for place in _places(document):
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > REFERENCES_MAX:
                raise UndecodableValue(f"a schema needs more than {REFERENCES_MAX} others")
            referenced = self._referenced(*place)
            self._collect(referenced, texts, seen)
            texts[place] = _avro_text(referenced)

    def _referenced(self, subject: str, version: int) -> dict[str, Any]:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        document = self._document(path)
        if document is None:
            raise UndecodableValue(
                f"version {version} of {subject!r} is gone, a schema refers to it"
            )
        return document

    def _document(self, path: str) -> dict[str, Any] | None:
        """What the registry answers; None where it says that it has no such thing."""
        status, body = self._answer(path)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise RegistryUnavailable(f"{self._base} answers {status} and no JSON object")
        if status == httpx.codes.OK:
            return document
        code = document.get("error_code")
        # A proxy's 404 is no word of a registry.
        if status == httpx.codes.NOT_FOUND and code in _NOT_THERE:
            return None
        raise RegistryUnavailable(f"{self._base} answers {status}, error code {code}")

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
            raise RegistryUnavailable(f"{self._base} does not answer: {reason}") from error

    def _check(self, size: int, deadline_s: float) -> None:
        if size > ANSWER_BYTES_MAX:
            raise RegistryUnavailable(f"{self._base} answers over {ANSWER_BYTES_MAX} bytes")
        # The client's own limits are for each piece.
        if time.monotonic() > deadline_s:
            raise RegistryUnavailable(f"{self._base} takes over {self._timeout_s:g} s to answer")


_NOT_THERE: Final = frozenset({40401, 40402, 40403})


def _parsed(registry_url: str) -> httpx.URL:
    try:
        url = httpx.URL(registry_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        # It may hold a password, so it is not repeated.
        raise ConfigurationError("the schema registry's URL is not like http://HOST:PORT")
    return url


def _unknown(schema_id: int) -> UnknownSchema:
    return UnknownSchema(f"no schema has id {schema_id}")


def _avro_text(document: dict[str, Any]) -> str:
    kind = document.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UndecodableValue(f"its schema is {kind!s:.40}, not AVRO")
    text = document.get("schema")
    if not isinstance(text, str):
        raise RegistryUnavailable("the registry answers without a schema")
    return text


def _quotable(subject: object) -> str:
    """A subject that a URL can name.

    Raises:
        ValueError: it is too long, or no text in UTF-8.
    """
    if len(quote(str(subject), safe="")) > QUOTED_MAX:
        raise ValueError("no URL can be so long")
    return str(subject)


def _places(document: dict[str, Any]) -> list[tuple[str, int]]:
    references = document.get("references") or []
    try:
        return [(_quotable(each["subject"]), int(each["version"])) for each in references]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise RegistryUnavailable("the registry answers with references of no sense") from error
