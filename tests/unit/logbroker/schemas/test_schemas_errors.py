"""Errors bear the codes that Confluent's clients know."""

import pytest

from logbroker.schemas import errors


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (errors.SubjectNotFound("s"), 40401, 404),
        (errors.VersionNotFound("s", 1), 40402, 404),
        (errors.SchemaNotFound("s"), 40403, 404),
        (errors.SubjectSoftDeleted("s"), 40404, 404),
        (errors.SubjectNotSoftDeleted("s"), 40405, 404),
        (errors.SchemaVersionSoftDeleted("s", 1), 40406, 404),
        (errors.SchemaVersionNotSoftDeleted("s", 1), 40407, 404),
        (errors.CompatibilityNotConfigured("s"), 40408, 404),
        (errors.IncompatibleSchema("s", "FULL", []), 409, 409),
        (errors.InvalidSchema("s"), 42201, 422),
        (errors.InvalidVersion("s"), 42202, 422),
        (errors.InvalidCompatibility("s"), 42203, 422),
        (errors.ReferenceExists("s"), 42206, 422),
        (errors.InvalidSubject("s"), 42208, 422),
        (errors.StoreUnavailable("s"), 50001, 500),
        (errors.LogReplaced("s"), 50001, 500),
        (errors.StoreTimeout("s"), 50002, 500),
    ],
)
def test_an_error_has_its_code_and_status(
    error: errors.SchemaRegistryError, code: int, status: int
) -> None:
    assert (error.code, error.status) == (code, status)
