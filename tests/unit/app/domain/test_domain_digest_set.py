"""The compact set of digests, and lasting digests."""

from random import Random

from app.domain.dedupe import lasting_digest
from app.domain.digest_set import DigestSet


def test_the_set_contains_exactly_the_added_digests() -> None:
    chance = Random(7)
    digests = [chance.getrandbits(64) for _ in range(10_000)]
    found = DigestSet()
    assert all(found.add(digest) for digest in digests[::2])
    assert [digest in found for digest in digests] == [True, False] * 5_000
    assert (len(found), found.is_full) == (5_000, False)


def test_digests_with_the_same_slot_are_distinguished() -> None:
    # A table of 1,024 slots at first: all of these want its last one.
    digests = [1_023 + (n << 32) for n in range(700)]
    found = DigestSet()
    for digest in digests:
        found.add(digest)
    assert all(digest in found for digest in digests)
    assert 1_023 + (700 << 32) not in found


def test_the_smallest_and_the_largest_digest_can_be_added() -> None:
    found = DigestSet()
    assert 0 not in found
    assert found.add(0)
    assert found.add(2**64 - 1)
    assert 0 in found
    assert 2**64 - 1 in found


def test_a_full_set_rejects_further_digests() -> None:
    found = DigestSet(entries_max=3)
    assert [found.add(digest) for digest in (10, 20, 30, 20)] == [True] * 4
    assert not found.is_full
    assert not found.add(40)
    assert found.is_full
    assert [digest in found for digest in (10, 20, 30, 40)] == [True, True, True, False]


def test_a_lasting_digest_is_equal_in_every_process() -> None:
    # By `printf 'evt_1\0{"n": 1}' | b2sum -l 64`.
    digest = lasting_digest("evt_1", b'{"n": 1}')
    assert f"{digest:016x}" == "5a54b21bafaf1c25"


def test_a_lasting_digest_separates_id_and_body() -> None:
    assert lasting_digest("evt_1", b"2") != lasting_digest("evt_12", b"")
    assert lasting_digest("evt_1", b"2") != lasting_digest("evt_1", b"3")
