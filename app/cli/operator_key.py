"""The file `operator.key` of a data directory: the operator's key, for commands on this machine.

It holds the key and a newline, has mode 0600, and is replaced atomically. `rewind up` creates it,
and creates a new key if the file is missing. The key of a lost file is valid until it is revoked.
"""

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.audit_log import record_change
from app.domain.accounts import DEFAULT_ACCOUNT_NAME, ApiKey, Scope

if TYPE_CHECKING:
    from app.config import Settings

FILE_NAME: Final = "operator.key"


def read_operator_key(data_dir: Path) -> str:
    """Return the text of the file.

    Raises:
        OSError: the file is missing or not readable.
    """
    return (data_dir / FILE_NAME).read_text(encoding="ascii", errors="replace").strip()


def ensure_operator_key(settings: "Settings") -> str:
    """Return the key in the file. Creates a new one if it is not a valid operator key.

    Raises:
        StoreError: the database does not answer.
        OSError: the file cannot be read or written.
    """
    # Commands that only read the file start without the SQL libraries.
    from app.store import Store

    with closing(Store.open(settings.database)) as store:
        try:
            token = read_operator_key(settings.data_dir)
        except FileNotFoundError:
            token = ""
        known = store.find_key(token)
        if known is not None and known.scope is Scope.OPERATOR:
            return token
        file = f"{FILE_NAME} of {settings.data_dir.resolve()}"
        description = f"{file} on {settings.server}"
        key, token = store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, description)
    _write(settings.data_dir, token)
    log_key_change("createKey", key)
    return token


def log_key_change(action: str, key: ApiKey) -> None:
    """Log in the audit log that the user of this process created or revoked a key."""
    record_change(action, key.id, account_id=key.account.id, scope=key.scope, uid=os.getuid())


def _write(data_dir: Path, token: str) -> None:
    # mkstemp creates the file with mode 0600.
    descriptor, name = tempfile.mkstemp(dir=data_dir, prefix=FILE_NAME)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(data_dir / FILE_NAME)
