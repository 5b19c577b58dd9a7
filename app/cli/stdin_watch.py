"""How a child process learns that its parent is gone: its standard input ends."""

import os
import signal
import sys
import threading


def stop_when_stdin_closes() -> None:
    """Send this process SIGTERM, once, when standard input ends; returns at once."""
    threading.Thread(target=_wait_and_stop, name="stdin-watch", daemon=True).start()


def _wait_and_stop() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
