"""How ZooKeeper is: however many ask, it takes one thread."""

from functools import partial

from app.api.single_flight import SingleFlight
from app.log.zookeeper_health import ZooKeeperServer, zookeeper_health
from app.process import on_own_thread


class EnsembleWatch:
    """Asks the servers of `addresses`, as `REWIND_ZOOKEEPER` has them, one question at a time."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._questions: SingleFlight[None, tuple[ZooKeeperServer, ...]] = SingleFlight(
            on_own_thread
        )

    async def read(self) -> tuple[ZooKeeperServer, ...]:
        """How they are, within a second or so; none where no ensemble is named."""
        if not self._addresses:
            return ()
        return await self._questions.ask(None, partial(zookeeper_health, self._addresses))
