"""A browser and a whole service, for all tests of the console: they are one xdist group."""

from collections.abc import Iterator

import pytest
from browser import Chromium


@pytest.fixture(scope="package")
def chromium() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium
