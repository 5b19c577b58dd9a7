"""`logbroker` as its users run it, told by the environment where the brokers are."""

import os
import subprocess
import sys
from collections.abc import Callable

from processes import DEADLINE_S

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def logbroker_command(bootstrap_servers: str, *beginning: str) -> Run:
    """What runs `logbroker BEGINNING ARGUMENTS` as a process, and waits for it."""
    environment = {**os.environ, "LOGBROKER_BOOTSTRAP_SERVERS": bootstrap_servers}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "logbroker", *beginning, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    return run
