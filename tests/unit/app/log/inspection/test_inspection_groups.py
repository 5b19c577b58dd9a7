"""Which groups are taken for mirrors'."""

import pytest

from app.log.inspection.groups import MirrorGroup, mirror_of


@pytest.mark.parametrize(
    ("group", "client_ids", "mirror"),
    [
        ("logbroker-mirror-LNlahtLtQRabx8TRJgMheg", [], MirrorGroup("LNlahtLtQRabx8TRJgMheg")),
        ("to-the-west", ["rdkafka", "logbroker-mirror"], MirrorGroup(None)),
        ("to-the-west", ["rdkafka"], None),
        ("to-the-west", [], None),
        ("logbroker-mirror-", [], None),
        ("my-logbroker-mirror-1", [], None),
    ],
)
def test_a_mirror_is_known_by_its_group_or_its_members(
    group: str, client_ids: list[str], mirror: MirrorGroup | None
) -> None:
    assert mirror_of(group, client_ids) == mirror
