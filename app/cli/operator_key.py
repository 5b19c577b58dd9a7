"""The operator's key of a data directory: the file `operator.key`, for commands on this machine.

The key's text alone, with a newline at its end; mode 0600, replaced as a whole or not at all.
`rewind up` makes it; who deletes it gets a new one at the next start. The key of a file that is
lost stays good until it is revoked.
"""

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from app.cli.audit import note_key
from app.config import Settings
from app.replay.accounts import DEFAULT_ACCOUNT_NAME, Scope
from app.store import Store

FILE_NAME: Final = "operator.key"


def read(data_dir: Path) -> str:
    """The text of the file.

    Raises:
        OSError: it is not there, or not for us to read.
    """
    return (data_dir / FILE_NAME).read_text(encoding="ascii", errors="replace").strip()


def ensure(settings: Settings) -> str:
    """The text of the file, which is made anew unless it is an operator's key to the database.

    Raises:
        StoreError: the database cannot be asked.
        OSError: the file cannot be read or written.
    """
    with closing(Store.open(settings.database)) as store:
        try:
            token = read(settings.data_dir)
        except FileNotFoundError:
            token = ""
        known = store.key_of(token)
        if known is not None and known.scope is Scope.OPERATOR:
            return token
        description = f"{FILE_NAME} of {settings.data_dir.resolve()} on {settings.server}"
        key, token = store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, description)
    _write(settings.data_dir, token)
    note_key("createKey", key)
    return token


def _write(data_dir: Path, token: str) -> None:
    # Its mode is 0600 from the beginning.
    descriptor, name = tempfile.mkstemp(dir=data_dir, prefix=FILE_NAME)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(data_dir / FILE_NAME)
