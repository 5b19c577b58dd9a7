"""Claim benchmark: workers claim each queued replay once, and again after it is reopened."""

import multiprocessing
from pathlib import Path

import pytest

from benchmarks.claim_rate import claim_until_none, queue_jobs, reopen_jobs, set_shared

JOBS = 7


@pytest.mark.parametrize("method", ["store", "blocking"])
def test_every_job_is_claimed_once_and_again_when_reopened(tmp_path: Path, method: str) -> None:
    url = f"sqlite:///{tmp_path / 'rewind.db'}"
    queue_jobs(url, JOBS)
    for _ in range(2):
        set_shared(multiprocessing.Barrier(1), counter := multiprocessing.Value("i", 0))
        claimed = claim_until_none(url, method, 1, JOBS)
        assert len(claimed.job_ids) == len(set(claimed.job_ids)) == counter.value == JOBS
        assert claimed.start_s < claimed.end_s
        reopen_jobs(url)
