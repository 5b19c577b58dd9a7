"""Each broker of the comparison that is installed here accepts the raw clients."""

from pathlib import Path

import pytest

from benchmarks.peers.exchange import Limit
from benchmarks.peers.rounds import PEERS, PeerScale, measure

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("peers")]

MESSAGES = 5_000
SCALE = PeerScale(1, Limit(MESSAGES, seconds=60.0), Limit(1_000, seconds=60.0))


@pytest.mark.parametrize("name", PEERS)
def test_a_broker_acknowledges_and_returns_every_message(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka compiles for a long run, the benchmark's, which takes twice the processor time here.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    results = measure([name], SCALE, tmp_path)
    if name in results.unavailable:
        pytest.skip(results.unavailable[name])
    assert results.versions[name]
    for batch in PEERS[name].batches:
        (figures,) = results.figures[name, batch]
        assert figures.produced.progress.messages == MESSAGES
        assert figures.consumed.progress.messages == MESSAGES
