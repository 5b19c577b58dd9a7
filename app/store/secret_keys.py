"""Encryption of the secrets of webhooks in the database, and the file with its keys.

The column holds `v1:KEY_ID:BASE64`, where BASE64 is a nonce of 12 bytes and the AES-256-GCM
ciphertext with its tag. The id of the webhook is the associated data, so the value of one webhook
is not accepted in the row of another. A value without `v1:` is the secret itself, as previous
versions stored it.

With SQLite, the key is in the file `secret.key` next to the database: base64 and a newline, mode
0600. The first process that needs it creates it.
"""

import os
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, make_url

from app.config import Settings
from app.domain.secret_keys import (
    ID_CHARS,
    KEY_BYTES,
    InvalidSecretKeys,
    format_secret_key,
    key_id,
    parse_secret_keys,
)
from app.store.errors import SecretKeyMissing, SecretUnreadable
from app.store.sql import now_ms

FILE_NAME: Final = "secret.key"

MARK: Final = "v1:"
"""The beginning of an encrypted value; a secret begins with `whsec_`."""

NONCE_BYTES: Final = 12
"""Random for each value: one key may encrypt 2**32 values."""

_OPTION: Final = "rewind_secret_keys"

_HINT: Final = (
    "set REWIND_SECRET_KEY_FILE to a file with the key, or REWIND_SECRET_KEY to the key; "
    "`rewind secrets new-key` makes a new one"
)


class SecretKeys:
    """The keys of one installation: the first encrypts, all decrypt.

    Without keys, secrets are stored as text: `Store.of`, which all processes use, does not allow
    that.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}

    def __repr__(self) -> str:
        return f"SecretKeys({', '.join(self.ids)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, the first one's first."""
        return tuple(self._ciphers)

    def encrypt(self, webhook_id: str, secret: str) -> str:
        """The value to store for a secret of the webhook."""
        if not self._ciphers:
            return secret
        name, cipher = next(iter(self._ciphers.items()))
        nonce = token_bytes(NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, secret.encode(), webhook_id.encode())
        return f"{MARK}{name}:{b64encode(sealed).decode()}"

    def decrypt(self, webhook_id: str, stored: str) -> str:
        """The secret of the webhook in a stored value.

        Raises:
            SecretUnreadable: its key is not among these, or the value was changed.
        """
        if not stored.startswith(MARK):
            return stored
        name, _, text = stored.removeprefix(MARK).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            name = name if len(name) == ID_CHARS and name.isalnum() else "?"
            raise SecretUnreadable(webhook_id, f"its key {name} is not configured; {_HINT}")
        try:
            sealed = b64decode(text, validate=True)
            opened = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], webhook_id.encode())
        except (InvalidTag, ValueError):
            raise SecretUnreadable(
                webhook_id,
                f"the value of key {name} in the database was changed or is another webhook's; "
                "restore it, or replace the secret",
            ) from None
        return opened.decode()


NO_KEYS: Final = SecretKeys()


def keys_of(connection: Connection) -> SecretKeys:
    """The keys of the store that runs the transaction."""
    keys: SecretKeys = connection.get_execution_options().get(_OPTION, NO_KEYS)
    return keys


def option_of(keys: SecretKeys) -> dict[str, SecretKeys]:
    """The execution option of an engine by which `keys_of` finds the keys."""
    return {_OPTION: keys}


def load_secret_keys(settings: Settings) -> SecretKeys:
    """The keys of the settings; with SQLite and without a setting, those of the default file.

    Creates the default file with a new key if it is missing.

    Raises:
        SecretKeyMissing: there is no key, or the file is not readable or has no valid keys.
    """
    if settings.secret_key:
        return SecretKeys(parse_secret_keys(settings.secret_key))
    if settings.secret_key_file:
        return _read(Path(settings.secret_key_file))
    url = make_url(settings.database)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise SecretKeyMissing(f"no key for the secrets of webhooks; {_HINT}")
    file = Path(url.database).parent / FILE_NAME
    if not file.exists():
        with suppress(FileExistsError):  # another process was faster
            create_key_file(file)
    return _read(file)


def new_secret_key() -> str:
    """A new random key, as text."""
    return format_secret_key(token_bytes(KEY_BYTES))


def create_key_file(file: Path) -> None:
    """Write a new key into a new file, which no process sees half-written.

    Raises:
        SecretKeyMissing: the file cannot be written.
        FileExistsError: it exists; it is not changed.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp creates the file with mode 0600.
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as opened:
                opened.write(f"{new_secret_key()}\n")
                opened.flush()
                os.fsync(opened.fileno())
            # Unlike a rename, a link does not replace a file.
            os.link(name, file)
        finally:
            Path(name).unlink()
    except FileExistsError:
        raise
    except OSError as error:
        raise SecretKeyMissing(f"cannot write the key file {file}: {error.strerror}") from error


def _read(file: Path) -> SecretKeys:
    try:
        text = file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise SecretKeyMissing(
            f"cannot read the key file {file}: {error.strerror}; {_HINT}"
        ) from error
    try:
        return SecretKeys(parse_secret_keys(text))
    except InvalidSecretKeys as error:
        raise SecretKeyMissing(f"the key file {file} {error}") from None


def rotated_secret(
    connection: Connection, row_id: str, present: str, new: str, grace_ms: int
) -> dict[str, Any]:
    """The values of a row that gets a new secret; the present one is kept for `grace_ms`."""
    keys = keys_of(connection)
    return {
        "secret": keys.encrypt(row_id, new),
        "previous_secret": keys.encrypt(row_id, present) if grace_ms else None,
        "previous_secret_until_ms": now_ms() + grace_ms if grace_ms else None,
    }
