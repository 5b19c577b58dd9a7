"""Limits of a registry: every client that can connect may register schemas."""

import pytest

from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import SchemaText
from logbroker.schemas.domain import decisions
from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.errors import RegistryFull
from tests.support.schemas.memory_log import MemoryLog

TEXT_BYTES = 900_000


@pytest.fixture
def registry() -> SchemaRegistry:
    """One that takes whatever is registered for compatible."""
    registry = SchemaRegistry(MemoryLog())
    registry.set_compatibility(None, Compatibility.NONE)
    return registry


def fixed(number: int) -> SchemaText:
    return SchemaText(f'{{"type":"fixed","name":"F{number}","size":1}}')


def large(number: int) -> SchemaText:
    return SchemaText(f'{{"type":"int","doc":"{str(number).ljust(TEXT_BYTES, "x")}"}}')


@pytest.mark.long
def test_a_subject_has_so_many_versions(registry: SchemaRegistry) -> None:
    for number in range(decisions.VERSIONS_MAX):
        registry.register("s", fixed(number))
    with pytest.raises(RegistryFull, match="'s' has 1000 versions; allowed are 1000"):
        registry.register("s", fixed(decisions.VERSIONS_MAX))
    # What it has is still found, and others have room.
    assert registry.register("s", fixed(7)).version == 8
    assert registry.register("t", fixed(decisions.VERSIONS_MAX)).version == 1


def test_the_versions_of_a_subject_have_so_much_text(registry: SchemaRegistry) -> None:
    for number in range(decisions.SUBJECT_TEXT_BYTES_MAX // TEXT_BYTES):
        registry.register("s", large(number))
    with pytest.raises(RegistryFull, match=r"'s' would have .* allowed are 8000000"):
        registry.register("s", large(99))
    assert registry.register("t", large(99)).version == 1


def test_all_schemas_have_so_much_text_and_deletion_does_not_help(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound itself is a quarter of a gigabyte.
    monkeypatch.setattr(decisions, "KEPT_TEXT_BYTES_MAX", 2 * TEXT_BYTES)
    registry.register("s", large(1))
    registry.delete_subject("s", permanent=False)
    registry.delete_subject("s", permanent=True)
    with pytest.raises(RegistryFull, match="allowed are 1800000"):
        registry.register("t", large(2))
    # What has an id already takes no more room.
    assert registry.register("t", large(1)).id == 1


def test_there_are_so_many_subjects_with_versions_or_levels(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "NAMES_MAX", 3)
    registry.register("s", fixed(1))
    registry.set_compatibility("t", Compatibility.FULL)
    for refused in (
        lambda: registry.register("u", fixed(1)),
        lambda: registry.set_compatibility("u", Compatibility.FULL),
    ):
        with pytest.raises(RegistryFull, match="There are 3 subjects"):
            refused()
    registry.set_compatibility("t", Compatibility.NONE)
    assert registry.register("t", fixed(1)).id == 1
