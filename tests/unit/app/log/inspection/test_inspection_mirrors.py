"""Which groups are taken for mirrors'."""

import pytest

from app.log.inspection.mirrors import Mirror, mirror_of


@pytest.mark.parametrize(
    ("group", "client_ids", "mirror"),
    [
        ("logbroker-mirror-LNlahtLtQRabx8TRJgMheg", [], Mirror("LNlahtLtQRabx8TRJgMheg")),
        ("to-the-west", ["rdkafka", "logbroker-mirror"], Mirror(None)),
        ("to-the-west", ["rdkafka"], None),
        ("to-the-west", [], None),
        ("logbroker-mirror-", [], None),
        ("my-logbroker-mirror-1", [], None),
    ],
)
def test_a_mirror_is_known_by_its_group_or_its_members(
    group: str, client_ids: list[str], mirror: Mirror | None
) -> None:
    assert mirror_of(group, client_ids) == mirror
