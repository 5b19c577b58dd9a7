"""A program: one consumer connector that records each received message.

`python -m tests.support.kafka.paper_consumer OPTIONS`, in JSON: the arguments of
`ConsumerConnector`, `streams`, `notes`, and `stop_after`, a number of messages after which it
stops itself by SIGSTOP. It leaves when standard input ends.
"""

import json
import logging
import os
import signal
import sys
import threading
import time

from logbroker.consumer import ConsumerConnector, MessageStream


class Notes:
    """A file with a line per received message. Written lines survive SIGKILL."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, stream: int, share: int, partition: int, offset: int, value: str) -> None:
        noted_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        line = json.dumps([noted_ns, stream, share, partition, offset, value])
        os.write(self._file, f"{line}\n".encode())


def read(number: int, stream: MessageStream, notes: Notes, stop_after: int) -> None:
    shares: list[object] = []
    for count, message in enumerate(stream, start=1):
        assert stream._delivered is not None
        share = stream._delivered[0]
        if not shares or shares[-1] is not share:
            shares.append(share)
        value = (message.value or b"").decode()
        notes.add(number, len(shares), message.partition, message.offset, value)
        if count == stop_after:
            # To this thread: a signal to the process may reach another thread first, and this
            # thread would continue until that one is scheduled.
            signal.raise_signal(signal.SIGSTOP)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    options = json.loads(sys.argv[1])
    notes = Notes(options.pop("notes"))
    wanted = options.pop("streams")
    stop_after = options.pop("stop_after")
    with ConsumerConnector(**options) as connector:
        streams = connector.create_message_streams(wanted)
        everything = [stream for each in streams.values() for stream in each]
        threads = [
            threading.Thread(target=read, args=(number, stream, notes, stop_after))
            for number, stream in enumerate(everything)
        ]
        for thread in threads:
            thread.start()
        sys.stderr.write("consumer ready \n")
        sys.stdin.read()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
