"""A store for the tests of the live path."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from app.store import Store


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with closing(Store.open(migrated_url)) as store:
        yield store
