"""Metrics as Prometheus scrapes them."""

import urllib.request

from tests.support.processes.waiting import DEADLINE_S


def scrape(port: int) -> dict[str, float]:
    """Scrape a local port and return all samples by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}
