"""Several processes of one server, among which the kernel distributes the connections."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn


def bind_together(host: str, port: int, count: int) -> list[socket.socket]:
    """`count` sockets that are bound to one address, and listen later; 0 chooses a port.

    Raises:
        OSError: another program has the address.
    """
    first = _bind(host, port)
    # Only now: sockets of another server with this option would be no error.
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    port = first.getsockname()[1]
    return [first, *(_bind(host, port, is_shared=True) for _ in range(count - 1))]


def _bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((host, port))
    return bound


def run_processes(
    serve: Callable[[socket.socket, int], int],
    listeners: Sequence[socket.socket],
    started: Callable[[], None],
) -> int:
    """Run `serve` in a process for each socket, until SIGTERM or SIGINT, or until one ends.

    Returns the exit code: that of the first process that ended with another one than 0. `serve`
    also gets a descriptor that the kernel closes when this process ends, even if it is killed.
    `started` is called once all processes run. This process must have no other threads until then.
    """
    alive, held_open = os.pipe()
    children: set[int] = set()

    def stop(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for listener in listeners:
        child = os.fork()
        if child == 0:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.close(held_open)
            for other in listeners:
                if other is not listener:
                    other.close()
            _end_with(partial(serve, listener, alive))
        children.add(child)
    for listener in listeners:
        listener.close()
    started()
    return _wait_for(children, stop)


def _end_with(serve: Callable[[], int]) -> NoReturn:
    """End this process with the exit code of `serve`, without what its parent does at its end."""
    exit_code = 1
    try:
        exit_code = serve()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(exit_code)


def _wait_for(children: set[int], stop: Callable[[], None]) -> int:
    exit_code = 0
    while children:
        child, status = os.wait()
        children.discard(child)
        # A process that a signal killed has a negative code.
        exit_code = exit_code or abs(os.waitstatus_to_exitcode(status))
        stop()
    return exit_code
