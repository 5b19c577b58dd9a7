"""Every request has a guard, so that no new API is open by accident."""

import pytest

from logbroker.server.authorization.access import Access
from logbroker.server.authorization.cluster_guards import UNGUARDED, Guards
from logbroker.server.authorization.view_guards import ViewGuards
from logbroker.wire.apis import SERVED, ApiKey


@pytest.mark.parametrize("api_key", SERVED)
def test_every_api_is_guarded_or_open_on_purpose(api_key: ApiKey) -> None:
    guards = Guards(Access(None), ViewGuards(lambda: pytest.fail("no view"), auto_create=True))
    assert guards.covers(api_key) != (api_key in UNGUARDED)
