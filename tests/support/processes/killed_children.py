"""Child processes that are killed at each line of a function, one after another."""

import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, Final

_DONE: Final = 0
_FAILED: Final = 70


def ends_when_killed_at_line(number: int, folder: str, work: Callable[[], object]) -> bool:
    """Run `work` in a child that is killed before its n-th line. Return whether it finished.

    Counted from 0 are the lines that are run of modules in `folder`, a part of a path. A kill at
    each number is a kill between any two steps, as none of these lines has a half.
    """
    child = os.fork()
    if child == 0:
        die_at_line(number, folder)
        try:
            work()
        except BaseException:
            sys.settrace(None)
            sys.excepthook(*sys.exc_info())
            os._exit(_FAILED)
        os._exit(_DONE)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == _DONE, "the work failed by itself"
    return True


def die_at_line(number: int, folder: str) -> None:
    """Kill this process before the n-th line from now on."""
    left = number

    def at_line(_frame: types.FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if event == "line":
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return at_line

    def at_call(frame: types.FrameType, _event: str, _argument: Any) -> Any:
        return at_line if folder in frame.f_code.co_filename else None

    sys.settrace(at_call)
