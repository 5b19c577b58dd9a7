"""A store for the tests of the live path."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from app.store import Store
from tests.support.database.migrated import reused_store_at


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with closing(reused_store_at(migrated_url)) as store:
        yield store
