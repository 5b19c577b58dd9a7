"""The store as those see it who watch the service: which processes are at work."""

from app.replay.presence import Details, Process, ProcessKind
from app.store import processes
from app.store.calls import Calls


class WatchCalls(Calls):
    """What processes tell of themselves, and who asks for it."""

    def be_present(
        self, kind: ProcessKind, name: str, origin: str, started_ms: int, details: Details
    ) -> None:
        """Say that a process lives, again every `BEAT_S`; see `Process`."""
        self._database.write_one(
            lambda db: processes.beat(db, kind, name, origin, started_ms, details)
        )

    def leave(self, kind: ProcessKind, name: str) -> None:
        """Say that a process ends: nobody is to miss it."""
        self._database.write_one(lambda db: processes.leave(db, kind, name))

    def forget_silent_processes(self) -> None:
        """Forget those that fell silent a day ago."""
        self._database.write_one(processes.forget_silent)

    def processes(self) -> tuple[Process, ...]:
        """Those that were heard of within a day, by kind and name."""
        return self._database.read(processes.known)
