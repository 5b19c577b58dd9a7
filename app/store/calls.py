"""What the groups of the store's calls share: the database they go to."""

from app.store.engine import Database


class Calls:
    """A group of the calls of a `Store`; each call is a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
