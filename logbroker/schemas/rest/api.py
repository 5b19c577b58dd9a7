"""The routes of Confluent's Schema Registry REST interface, each with its handler.

Source: Confluent Schema Registry, "API reference".
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from logbroker.schemas.avro.schema_text import SchemaText
from logbroker.schemas.domain.registry import Deleted, SchemaRegistry
from logbroker.schemas.domain.state import RegisteredSchema
from logbroker.schemas.errors import SubjectNotFound
from logbroker.schemas.rest.errors import RequestRejected
from logbroker.schemas.rest.request import READ_ONLY, READ_WRITE, RestRequest

VERSION: Final = version("rewind")

LISTED_CHARS_MAX: Final = 16 * 2**20
"""Total size of the schemas in one list: several threads may each render such a list as JSON."""

Handler = Callable[[SchemaRegistry, RestRequest], Any]
"""Returns the JSON value of the response; may wait for the log."""


class RawSchema(str):
    """The text of a schema, which is JSON already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path; `{name}` in the path matches one segment."""

    method: str
    path: str
    handler: Handler

    @property
    def needs_write_permission(self) -> bool:
        """Whether a client that may only read is refused: PUT, DELETE, and the registration."""
        return self.method in ("PUT", "DELETE") or self.handler is _register


def _always(document: Any) -> Handler:
    """Return a handler whose response is the same for each request."""
    return lambda _registry, _request: document


def _cluster_id(registry: SchemaRegistry, _request: RestRequest) -> Any:
    clusters = {"kafka-cluster": registry.cluster, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


def _schemas(registry: SchemaRegistry, request: RestRequest) -> Any:
    found = request.page(
        registry.schemas(
            request.query.get("subjectPrefix", ""),
            with_deleted=request.flag("deleted"),
            latest_only=request.flag("latestOnly"),
        )
    )
    size = sum(len(each.schema.text) for each in found)
    if size > LISTED_CHARS_MAX:
        raise RequestRejected(
            400,
            f"{len(found)} schemas have {size} characters; allowed are {LISTED_CHARS_MAX} per"
            " response. Request fewer with 'limit'.",
        )
    return [_document(each) for each in found]


def _schema(registry: SchemaRegistry, request: RestRequest) -> Any:
    return _text_document(registry.schema(request.schema_id()))


def _schema_itself(registry: SchemaRegistry, request: RestRequest) -> Any:
    return RawSchema(registry.schema(request.schema_id()).text)


def _schema_subjects(registry: SchemaRegistry, request: RestRequest) -> Any:
    return request.page(sorted({subject for subject, _ in _subject_versions(registry, request)}))


def _schema_versions(registry: SchemaRegistry, request: RestRequest) -> Any:
    versions = request.page(_subject_versions(registry, request))
    return [{"subject": subject, "version": version} for subject, version in versions]


def _subject_versions(registry: SchemaRegistry, request: RestRequest) -> list[tuple[str, int]]:
    versions = registry.subject_versions(request.schema_id(), with_deleted=request.flag("deleted"))
    wanted = request.query.get("subject")
    return [each for each in versions if wanted in (None, "", each[0])]


def _subjects(registry: SchemaRegistry, request: RestRequest) -> Any:
    prefix = request.query.get("subjectPrefix", "")
    return request.page(registry.subjects(prefix, deleted=_asked_deleted(request)))


def _asked_deleted(request: RestRequest) -> Deleted:
    if request.flag("deletedOnly"):
        return "only"
    return "also" if request.flag("deleted") else "none"


def _look_up(registry: SchemaRegistry, request: RestRequest) -> Any:
    found = registry.look_up(
        request.subject,
        request.schema(),
        with_deleted=request.flag("deleted"),
        normalize=request.flag("normalize"),
    )
    return _document(found)


def _delete_subject(registry: SchemaRegistry, request: RestRequest) -> Any:
    return registry.delete_subject(request.subject, permanent=request.flag("permanent"))


def _versions(registry: SchemaRegistry, request: RestRequest) -> Any:
    asked = _asked_deleted(request)
    known = registry.versions(request.subject, with_deleted=asked != "none")
    if asked == "only":
        known = sorted(set(known) - set(_live_versions(registry, request.subject)))
    return request.page(known)


def _live_versions(registry: SchemaRegistry, subject: str) -> list[int]:
    try:
        return registry.versions(subject)
    except SubjectNotFound:
        return []


def _register(registry: SchemaRegistry, request: RestRequest) -> Any:
    new = request.new_schema()
    return {"id": registry.register(request.subject, new, request.flag("normalize")).id}


def _version(registry: SchemaRegistry, request: RestRequest) -> Any:
    return _document(_asked_version(registry, request))


def _version_itself(registry: SchemaRegistry, request: RestRequest) -> Any:
    return RawSchema(_asked_version(registry, request).schema.text)


def _asked_version(registry: SchemaRegistry, request: RestRequest) -> RegisteredSchema:
    return registry.version(
        request.subject, request.version(), with_deleted=request.flag("deleted")
    )


def _delete_version(registry: SchemaRegistry, request: RestRequest) -> Any:
    return registry.delete_version(
        request.subject, _numbered(registry, request), permanent=request.flag("permanent")
    )


def _referenced_by(registry: SchemaRegistry, request: RestRequest) -> Any:
    return request.page(registry.referenced_by(request.subject, _numbered(registry, request)))


def _numbered(registry: SchemaRegistry, request: RestRequest) -> int:
    """The version number in the path, with `latest` resolved."""
    return request.version() or registry.version(request.subject).version


def _check_all(registry: SchemaRegistry, request: RestRequest) -> Any:
    return _checked(request, registry.check(request.subject, None, request.schema()))


def _check_one(registry: SchemaRegistry, request: RestRequest) -> Any:
    schema, version = request.schema(), request.version()
    if version is None:
        live = _live_versions(registry, request.subject)
        if not live:
            # No earlier version exists, so every schema is compatible.
            return _checked(request, registry.check(request.subject, None, schema))
        version = live[-1]
    return _checked(request, registry.check(request.subject, version, schema))


def _checked(request: RestRequest, problems: list[str]) -> Any:
    details = {"messages": problems} if request.flag("verbose") else {}
    return {"is_compatible": not problems, **details}


def _config(registry: SchemaRegistry, _request: RestRequest) -> Any:
    return {"compatibilityLevel": registry.compatibility(None).value}


def _subject_config(registry: SchemaRegistry, request: RestRequest) -> Any:
    or_global = request.flag("defaultToGlobal")
    level = registry.compatibility(request.subject, or_global=or_global)
    return {"compatibilityLevel": level.value}


def _set_config(registry: SchemaRegistry, request: RestRequest) -> Any:
    level = request.level()
    registry.set_compatibility(request.path.get("subject"), level)
    return {"compatibility": level.value}


def _clear_config(registry: SchemaRegistry, request: RestRequest) -> Any:
    level = registry.clear_compatibility(request.path.get("subject"))
    return {"compatibilityLevel": level.value}


def _mode(registry: SchemaRegistry, _request: RestRequest) -> Any:
    return {"mode": _mode_of(registry)}


def _set_mode(registry: SchemaRegistry, request: RestRequest) -> Any:
    return {"mode": request.mode(_mode_of(registry))}


def _mode_of(registry: SchemaRegistry) -> str:
    return READ_ONLY if registry.is_read_only else READ_WRITE


ROUTES: Final = (
    Route("GET", "/", _always({})),
    Route("GET", "/contexts", _always(["."])),
    Route("GET", "/v1/metadata/id", _cluster_id),
    Route("GET", "/v1/metadata/version", _always({"version": VERSION})),
    Route("GET", "/schemas", _schemas),
    Route("GET", "/schemas/types", _always(["AVRO"])),
    Route("GET", "/schemas/ids/{id}", _schema),
    Route("GET", "/schemas/ids/{id}/schema", _schema_itself),
    Route("GET", "/schemas/ids/{id}/subjects", _schema_subjects),
    Route("GET", "/schemas/ids/{id}/versions", _schema_versions),
    Route("GET", "/subjects", _subjects),
    Route("POST", "/subjects/{subject}", _look_up),
    Route("DELETE", "/subjects/{subject}", _delete_subject),
    Route("GET", "/subjects/{subject}/versions", _versions),
    Route("POST", "/subjects/{subject}/versions", _register),
    Route("GET", "/subjects/{subject}/versions/{version}", _version),
    Route("DELETE", "/subjects/{subject}/versions/{version}", _delete_version),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", _version_itself),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", _referenced_by),
    Route("POST", "/compatibility/subjects/{subject}/versions", _check_all),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", _check_one),
    Route("GET", "/config", _config),
    Route("PUT", "/config", _set_config),
    Route("DELETE", "/config", _clear_config),
    Route("GET", "/config/{subject}", _subject_config),
    Route("PUT", "/config/{subject}", _set_config),
    Route("DELETE", "/config/{subject}", _clear_config),
    Route("GET", "/mode", _mode),
    Route("PUT", "/mode", _set_mode),
    Route("GET", "/mode/{subject}", _mode),
    Route("PUT", "/mode/{subject}", _set_mode),
    Route("DELETE", "/mode/{subject}", _mode),
)


def _text_document(schema: SchemaText) -> dict[str, Any]:
    references = [
        {"name": each.name, "subject": each.subject, "version": each.version}
        for each in schema.references
    ]
    return {"schema": schema.text, **({"references": references} if references else {})}


def _document(found: RegisteredSchema) -> dict[str, Any]:
    members = {"subject": found.subject, "version": found.version, "id": found.id}
    return {**members, **_text_document(found.schema)}
