"""A store with the key that processes of tests have for the secrets of webhooks."""

from app.domain.secret_keys import parse_secret_keys
from app.store import Store
from app.store.secret_keys import SecretKeys
from tests.support.processes.server_process import SECRET_KEY


def open_store(url: str) -> Store:
    """Return a store with the same key as the processes."""
    return Store.open(url, SecretKeys(parse_secret_keys(SECRET_KEY)))
