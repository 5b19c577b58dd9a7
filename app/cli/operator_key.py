"""Makes the operator's key of a data directory, and keeps it in the file `operator.key`.

`rewind up` makes it; a file that was deleted gets a new key at the next start. The key of a file
that is lost stays good until it is revoked.
"""

from contextlib import closing

from app.cli import operator_key_file
from app.cli.audit import note_key
from app.config import Settings
from app.domain.accounts import DEFAULT_ACCOUNT_NAME, Scope
from app.store import Store


def ensure(settings: Settings) -> str:
    """The text of the file; one that holds no operator's key to the database gets a new key.

    Raises:
        StoreError: the database cannot be asked.
        OSError: the file cannot be read or written.
    """
    with closing(Store.open(settings.database)) as store:
        try:
            token = operator_key_file.read(settings.data_dir)
        except FileNotFoundError:
            token = ""
        known = store.find_key(token)
        if known is not None and known.scope is Scope.OPERATOR:
            return token
        file = f"{operator_key_file.FILE_NAME} of {settings.data_dir.resolve()}"
        description = f"{file} on {settings.server}"
        key, token = store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, description)
    operator_key_file.write(settings.data_dir, token)
    note_key("createKey", key)
    return token
