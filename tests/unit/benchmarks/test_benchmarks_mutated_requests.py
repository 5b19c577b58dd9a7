import struct

from benchmarks.mutated_requests import mutated_frames, valid_frames
from logbroker.wire.apis import SERVED, ApiKey

COUNT = 200


def test_valid_requests_cover_every_version_of_every_api() -> None:
    found = {struct.unpack_from(">hh", frame) for frame in valid_frames()}
    expected = {
        (key, version)
        for key, (first, last) in SERVED.items()
        if key not in {ApiKey.PRODUCE, ApiKey.FETCH}
        for version in range(first, last + 1)
    }
    assert found >= expected
    assert {key for key, _ in found} == set(SERVED)


def test_a_seed_makes_the_same_requests_each_time() -> None:
    first, again, other = (list(mutated_frames(seed, COUNT)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_most_requests_have_their_own_size() -> None:
    frames = list(mutated_frames(3, COUNT))
    right = sum(struct.unpack_from(">i", frame)[0] == len(frame) - 4 for frame in frames)
    assert COUNT * 0.9 < right < COUNT
