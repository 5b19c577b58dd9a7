"""Encryption of secrets that a previous version stored as text, after a migration."""

from contextlib import closing

from app.config import Settings
from app.store.secret_rotation import TEXT
from app.store.store import Store


def encrypt_text_secrets(settings: Settings) -> int:
    """Encrypt what is stored as text; returns the number of changed webhooks.

    Needs no key if there is nothing to encrypt.

    Raises:
        StoreUnavailable: the database does not answer.
        SecretKeyMissing: see `load_secret_keys`.
    """
    with closing(Store.open(settings.database)) as store:
        if not store.count_secrets_by_key().get(TEXT):
            return 0
    with closing(Store.of(settings)) as store:
        return store.reencrypt_secrets(only_text=True)
