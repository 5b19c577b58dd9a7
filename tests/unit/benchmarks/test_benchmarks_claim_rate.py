"""Workers of the measurement claim what is queued, each job once, and again once it is reopened."""

import multiprocessing
from pathlib import Path

import pytest

from benchmarks.claim_rate import claim_until_none, open_again, queue_jobs, share

JOBS = 7


@pytest.mark.parametrize("way", ["store", "naive"])
def test_every_job_is_claimed_once_and_again_when_reopened(tmp_path: Path, way: str) -> None:
    url = f"sqlite:///{tmp_path / 'rewind.db'}"
    queue_jobs(url, JOBS)
    for _ in range(2):
        share(multiprocessing.Barrier(1), counter := multiprocessing.Value("i", 0))
        claimed = claim_until_none(url, way, 1, JOBS)
        assert len(claimed.job_ids) == len(set(claimed.job_ids)) == counter.value == JOBS
        assert claimed.start_s < claimed.end_s
        open_again(url)
