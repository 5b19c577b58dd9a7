"""A request of a group's member, from the time it came to the time it is answered."""

from collections.abc import Callable

from logbroker.groups.exchanges import Answer
from logbroker.server.connection import Connection


class Question:
    """The token that a group knows a request by.

    `on_leave` is told when the connection closes before the answer is known.
    """

    __slots__ = ("_answer", "_connection", "_on_leave", "is_answered")

    def __init__(self, connection: Connection, answer: Callable[[Answer], None]) -> None:
        self.is_answered = False
        self._connection = connection
        self._answer = answer
        self._on_leave: Callable[[Question], None] | None = None

    def wait(self, on_leave: Callable[["Question"], None]) -> None:
        """Wait for an answer that comes later."""
        self._on_leave = on_leave
        self._connection.waiting.add(self)

    def fill(self, answer: Answer) -> None:
        """Give the answer, once."""
        assert not self.is_answered, "a question is answered once"
        self.is_answered = True
        self._connection.waiting.discard(self)
        self._answer(answer)

    def leave(self) -> None:
        """The connection is closed; nobody will hear the answer."""
        if self._on_leave is not None and not self.is_answered:
            self._on_leave(self)
