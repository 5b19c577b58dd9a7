"""A store for the parts of the live path that talk to one."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from app.store import Store, migrate


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    migrate(database_url)
    with closing(Store.open(database_url)) as store:
        yield store
