"""`python -m tests.support.processes.fork_server_main DESCRIPTOR`: fork our programs, all imported.

A program takes a quarter of a second of a processor to import, and a test run starts over a
thousand. `fork_server.py` sends requests over the socket: one datagram is one process, with its
standard streams and a pipe that receives its id, and later its exit code. The program ends when
the other side closes the socket.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import socket
import sys
import threading
from contextlib import suppress
from typing import Any, Final, NamedTuple

PROGRAMS: Final = ("logbroker", "app")
"""Packages that are commands: `python -m` of one of them."""

LOADED_WHEN_RUN: Final = (
    "app.api.application",
    "app.console.application",
    "app.http.server",
    "app.live.server",
    "app.replay_workers.server",
    "alembic.command",
    "logbroker.client.raw.unreadable_batches",
    "logbroker.mirror.clients",
    "logbroker.mirror.metrics",
    "logbroker.mirror.mirror",
    "logbroker.registry.zookeeper.consumers",
    "logbroker.registry.zookeeper.registry",
    "logbroker.schemas.client_properties",
    "logbroker.schemas.server",
    "logbroker.server.broker",
    "logbroker.server.metrics.collector",
)
"""What no module of a command line imports before its command is called."""

SCRIPTS: Final = tuple(
    f"tests.support.kafka.{name}"
    for name in ("group_member", "paper_consumer", "counting_consumer")
)
"""Programs of the tests."""

REQUEST_BYTES_MAX: Final = 2**20


class Request(NamedTuple):
    """A process to start: descriptors are of its three standard streams."""

    document: dict[str, Any]
    streams: list[int]


class Starter:
    """The loop of the process that forks; `serve` returns in each child, and at the end."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._ready = selectors.DefaultSelector()
        self._ready.register(channel, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """What this process is to become; nothing when all is over."""
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is not self._channel:
                    self._report_end(key)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._channel, REQUEST_BYTES_MAX, 4)
                if not message:
                    return None
                *streams, report = descriptors
                if self._fork(streams, report) == 0:
                    return Request(json.loads(message), streams)

    def _fork(self, streams: list[int], report: int) -> int:
        pid = os.fork()
        if pid == 0:
            # All that the parent serves is closed with every other descriptor.
            self._channel.detach()
            self._ready.close()
            return pid
        for each in streams:
            os.close(each)
        os.write(report, b"%d\n" % pid)
        self._ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))
        return pid

    def _report_end(self, key: selectors.SelectorKey) -> None:
        pid, report = key.data
        _, status = os.waitpid(pid, 0)
        self._ready.unregister(key.fileobj)
        # Broken where the test process no longer reads it.
        with suppress(BrokenPipeError):
            os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
        for each in (key.fd, report):
            os.close(each)


def load() -> None:
    """Import what programs of ours import, and start no thread."""
    for name in PROGRAMS:
        commands = importlib.import_module(f"{name}.cli")
        for module in pkgutil.iter_modules(commands.__path__, f"{name}.cli."):
            importlib.import_module(module.name)
    for name in (*LOADED_WHEN_RUN, *SCRIPTS):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in every child"  # noqa: PTH208
    # What is there already is not looked at again in each child, which would copy it.
    gc.freeze()


def become(request: Request) -> None:
    """Be `python -m MODULE ARGUMENTS` or `python -c CODE ARGUMENTS`, as if started by itself."""
    for number, each in enumerate(request.streams):
        os.dup2(each, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    document = request.document
    os.environ.clear()
    os.environ.update(document["environment"])
    os.chdir(document["folder"])
    option, program, *arguments = document["arguments"]
    sys.path[0] = document["folder"]
    if option == "-c":
        sys.argv = [option, *arguments]
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def exit_at_once(code: int) -> None:
    """End as the interpreter does, but free no module: that would copy all memory of the parent."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def main() -> None:
    """Serve, and in each child be what was asked for."""
    load()
    request = Starter(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is None:
        return
    try:
        become(request)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        exit_at_once(end.code or 0)
    exit_at_once(0)


if __name__ == "__main__":
    main()
