from benchmarks.record_validation import BATCHES, CODECS, _round


def test_every_size_form_and_codec_is_measured() -> None:
    found = _round(0.0)
    assert {f"batch {size}, pure" for size in BATCHES} <= found.keys()
    assert {f"batch 1 MB, {codec.name.lower()}" for codec in CODECS} <= found.keys()
    assert all(rate > 0 and baseline > 0 for _, rate, baseline in found.values())
