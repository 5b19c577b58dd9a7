"""A store for the parts of the live path that talk to one."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from app.store import Store
from tests.support.database.migrated import make_migrated


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    make_migrated(database_url)
    with closing(Store.open(database_url)) as store:
        yield store
