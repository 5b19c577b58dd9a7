"""For a process that has this folder in PYTHONPATH: its first hard link is its end.

DIE_AT says when: `before-link` or `after-link`. As by SIGKILL, nothing is flushed or reported.
"""

import os
import signal
from typing import Any

_link = os.link
_when = os.environ.get("DIE_AT")


def _link_and_die(*arguments: Any, **options: Any) -> None:
    if _when == "after-link":
        _link(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)


if _when is not None:
    os.link = _link_and_die
