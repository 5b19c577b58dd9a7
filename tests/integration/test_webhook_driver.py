"""The driver for webhook systems measures Rewind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.server_process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("peers")]


def test_a_running_rewind_is_measured(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    command = ("-m", "app", "up", "--data-dir", str(data_dir), "--port", "0", "--broker-port", "0")
    settings = {
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_LIVE_DELAYS_S": "0",
        "REWIND_SECRET_KEY": "",
    }
    with ServerProcess(command, tmp_path / "up.log", settings) as up:
        url = up.start("rewind ready on ")
        token = (data_dir / "operator.key").read_text().strip()
        driver = [
            *("-m", "benchmarks.peers.webhooks", "--quick", "--rewind", url),
            *("--token", token, "--pid", str(up.pid)),
        ]
        done = subprocess.run(
            [sys.executable, *driver], capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr
    figures = dict(re.findall(r"^ *(.+?) {2,}(\S+) +\S", done.stdout, re.MULTILINE))
    assert figures["missing of 200"] == "0"
    assert figures["sent twice"] == "0"
    assert {"missed events sent again", "latency at 200/s, p50", "idle"} <= figures.keys()
