"""Checks against many versions: what they take, and how much they tell."""

import gc
import json
import tracemalloc

import pytest

from logbroker.schemas.avro.compatibility import MESSAGES_MAX, Compatibility
from logbroker.schemas.avro.resolution import MISMATCHES_MAX
from logbroker.schemas.avro.schema_text import SchemaText
from logbroker.schemas.domain.registry import SchemaRegistry
from tests.support.schemas.memory_log import MemoryLog


@pytest.fixture
def registry() -> SchemaRegistry:
    return SchemaRegistry(MemoryLog())


@pytest.mark.long
def test_a_check_against_many_versions_keeps_one_at_a_time(registry: SchemaRegistry) -> None:
    fields = ",".join(f'{{"name":"f{n}","type":"int"}}' for n in range(500))

    def wide(version: int) -> SchemaText:
        return SchemaText(f'{{"type":"record","name":"R","doc":"{version}","fields":[{fields}]}}')

    def most_of_a_check() -> int:
        # The more objects the last full collection has found, those of other tests too, the later
        # the next one comes.
        gc.freeze()
        gc.collect()
        tracemalloc.start()
        assert registry.check("s", None, wide(0)) == []
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.unfreeze()
        return most

    registry.set_compatibility("s", Compatibility.NONE)
    for version in range(1, 21):
        registry.register("s", wide(version))
    registry.set_compatibility("s", Compatibility.FULL)
    with_one = most_of_a_check()
    registry.set_compatibility("s", Compatibility.FULL_TRANSITIVE)
    assert most_of_a_check() < 4 * with_one


def test_the_number_of_reported_problems_is_limited(
    registry: SchemaRegistry,
) -> None:
    registry.set_compatibility("s", Compatibility.NONE)
    for version in range(1, MESSAGES_MAX):
        fixed = [{"type": "fixed", "name": f"F{n}", "size": version} for n in range(50)]
        fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(fixed)]
        schema = {"type": "record", "name": "R", "fields": fields}
        registry.register("s", SchemaText(json.dumps(schema)))
    registry.set_compatibility("s", Compatibility.FULL_TRANSITIVE)
    new = SchemaText(json.dumps({**schema, "fields": [{**each, "type": "int"} for each in fields]}))
    assert MESSAGES_MAX <= len(registry.check("s", None, new)) < MESSAGES_MAX + 2 * MISMATCHES_MAX
