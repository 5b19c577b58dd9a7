"""Secrets of webhooks are encrypted in the database, and readable with the right key only."""

import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select, update

from app.config import Settings
from app.domain.account_notices import NewNoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.endpoint_options import (
    HEADERS_BYTES_MAX,
    BearerAuthentication,
    EndpointOptions,
    Ordering,
)
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.secret_keys import format_secret_key, key_id
from app.store import SecretKeyMissing, SecretUnreadable, Store
from app.store.secret_keys import (
    FILE_NAME,
    NO_KEYS,
    SecretKeys,
    create_key_file,
    load_secret_keys,
)
from app.store.stored_secrets import encrypt_text_secrets
from app.store.tables import webhooks
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import sqlite_url
from tests.support.database.migrated import make_migrated

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
OLD_ID, NEW_ID = key_id(OLD), key_id(NEW)

LONGEST = "whsec_" + format_secret_key(bytes(64))


@pytest.fixture
def stored_store(database_url: str) -> Iterator[Store]:
    """A store with the key OLD."""
    with closing(Store.open(database_url, SecretKeys([OLD]))) as opened:
        yield opened


def create(store: Store, secret: str | None = None) -> Webhook:
    new = NewWebhook("https://example.com/hook", "orders", secret or new_secret())
    return store.create_webhook(new)


def columns(store: Store, webhook: Webhook) -> tuple[str, str | None]:
    """The two columns with secrets."""
    query = select(webhooks.c.secret, webhooks.c.previous_secret)
    where = query.where(webhooks.c.id == webhook.id)
    row = store.database.read(lambda connection: connection.execute(where).one())
    return row[0], row[1]


def write_text(store: Store, webhook: Webhook, secret: str) -> None:
    """Store a secret as the previous version did."""
    statement = update(webhooks).where(webhooks.c.id == webhook.id).values(secret=secret)
    store.database.write(lambda connection: connection.execute(statement))


def test_a_value_is_readable_with_its_key_and_for_its_webhook_only() -> None:
    keys = SecretKeys([OLD])
    stored = keys.encrypt("wh_1", "whsec_abc")
    assert stored.startswith(f"v1:{OLD_ID}:")
    assert keys.decrypt("wh_1", stored) == "whsec_abc"
    assert SecretKeys([NEW, OLD]).decrypt("wh_1", stored) == "whsec_abc"
    # Two values of one secret differ, so the database does not show that webhooks share one.
    assert keys.encrypt("wh_1", "whsec_abc") != stored
    with pytest.raises(SecretUnreadable, match=f"its key {OLD_ID} is not configured"):
        SecretKeys([NEW]).decrypt("wh_1", stored)
    with pytest.raises(SecretUnreadable, match=f"value of key {OLD_ID} .* is another webhook's"):
        keys.decrypt("wh_2", stored)
    with pytest.raises(SecretUnreadable):
        NO_KEYS.decrypt("wh_1", stored)


@pytest.mark.parametrize("cut", [0, 3, 12, 13, 20, -1])
def test_a_changed_value_is_rejected(cut: int) -> None:
    keys = SecretKeys([OLD])
    stored = keys.encrypt("wh_1", "whsec_abc")
    with pytest.raises(SecretUnreadable) as refused:
        keys.decrypt("wh_1", stored[: len("v1:12345678:") + cut])
    assert "whsec_abc" not in str(refused.value)


def test_keys_are_not_shown() -> None:
    assert repr(SecretKeys([NEW, OLD])) == f"SecretKeys({NEW_ID}, {OLD_ID})"
    settings = Settings(secret_key=format_secret_key(OLD))
    assert format_secret_key(OLD) not in repr(settings)


def test_the_longest_secret_fits_into_its_column(stored_store: Store) -> None:
    webhook = create(stored_store, LONGEST)
    assert stored_store.webhook(webhook.id).secret == LONGEST
    width = webhooks.c.secret.type.length  # type: ignore[attr-defined]
    assert len(columns(stored_store, webhook)[0]) < width


def test_options_of_webhooks_are_stored_encrypted(stored_store: Store, database_url: str) -> None:
    def stored_options() -> str | None:
        query = select(webhooks.c.options).where(webhooks.c.id == webhook.id)
        found: str | None = store.database.read(
            lambda connection: connection.execute(query).scalar_one()
        )
        return found

    # The longest options that the API accepts fit into MySQL's TEXT.
    header = {"x-a": "\\" * (HEADERS_BYTES_MAX - 3)}
    token = BearerAuthentication("\\" * 4_096)
    options = EndpointOptions(header, token, retry_schedule_s=(1, 2), ordering=Ordering.STRICT)
    store = stored_store
    webhook = store.create_webhook(
        NewWebhook("https://example.com/hook", "orders", new_secret(), options=options)
    )
    assert webhook.options == options
    stored = stored_options()
    assert stored is not None
    assert stored.startswith(f"v1:{OLD_ID}:")
    assert [each.options for each in store.webhooks().items] == [options]
    assert store.count_secrets_by_key() == {OLD_ID: 2}
    with closing(Store.open(database_url, SecretKeys([NEW, OLD]))) as rotating:
        assert rotating.reencrypt_secrets() == 1
        assert rotating.count_secrets_by_key() == {NEW_ID: 2}
        assert rotating.webhook(webhook.id).options == options
        rotating.update_webhook(webhook.id, change_options=lambda _: EndpointOptions())
        assert rotating.webhook(webhook.id).options is None
    assert stored_options() is None


def test_secrets_of_webhooks_are_stored_encrypted(stored_store: Store) -> None:
    store = stored_store
    webhook = create(store)
    first, second = webhook.secret, new_secret()
    rotated = store.rotate_secret(webhook.id, second, 60_000)
    assert (rotated.secret, rotated.previous_secret) == (second, first)
    for stored in columns(store, webhook):
        assert stored is not None
        assert stored.startswith(f"v1:{OLD_ID}:")
    # The current secret again changes nothing, although the ciphertext would differ.
    before = columns(store, webhook)
    assert store.rotate_secret(webhook.id, second, 60_000).previous_secret == first
    assert columns(store, webhook) == before
    assert [each.secret for each in store.webhooks().items] == [second]
    assert [each.secret for each in store.routing_changes(0).webhooks] == [second]
    revision = store.routing_changes(0).revision
    store.update_webhook(webhook.id, description="other")
    assert [each.secret for each in store.routing_changes(revision).webhooks] == [second]
    store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
    assert store.count_secrets_by_key() == {OLD_ID: 2}
    store.delete_webhook(webhook.id)
    assert columns(store, webhook) == ("", None)
    assert store.count_secrets_by_key() == {}


def test_secrets_of_notice_endpoints_are_encrypted_and_rotated(
    stored_store: Store, database_url: str
) -> None:
    new = NewNoticeEndpoint(DEFAULT_ACCOUNT, "https://example.com/n", "", LONGEST)
    endpoint = stored_store.create_notice_endpoint(new)
    create(stored_store)
    assert endpoint.secret == LONGEST
    second = new_secret()
    stored_store.rotate_notice_secret(endpoint.id, second, 60_000)
    assert stored_store.count_secrets_by_key() == {OLD_ID: 3}
    with closing(Store.open(database_url, SecretKeys([NEW]))) as other:
        with pytest.raises(SecretUnreadable, match=endpoint.id):
            other.notice_endpoint(endpoint.id)
        with pytest.raises(SecretKeyMissing):
            other.check()
    with closing(Store.open(database_url, SecretKeys([NEW, OLD]))) as rotating:
        assert rotating.reencrypt_secrets() == 2
        assert rotating.count_secrets_by_key() == {NEW_ID: 3}
        assert rotating.notice_endpoint(endpoint.id).secrets_at(0) == (second, LONGEST)
        assert rotating.reencrypt_secrets() == 0


def test_with_another_key_nothing_is_read_and_the_check_names_the_key(
    stored_store: Store, database_url: str
) -> None:
    webhook = create(stored_store)
    stored_store.check()
    with closing(Store.open(database_url, SecretKeys([NEW]))) as other:
        with pytest.raises(SecretUnreadable, match=rf"'{webhook.id}' .* key {OLD_ID} is not"):
            other.webhook(webhook.id)
        with pytest.raises(SecretUnreadable):
            other.routing_changes(0)
        with pytest.raises(SecretKeyMissing) as refused:
            other.check()
    assert str(refused.value) == (
        f"1 secrets of webhooks are encrypted with the key {OLD_ID}; configured: {NEW_ID}. "
        "Add the key to REWIND_SECRET_KEY, or to the key file"
    )


def test_secrets_are_encrypted_again_with_a_new_first_key(
    stored_store: Store, database_url: str
) -> None:
    created = [create(stored_store) for _ in range(3)]
    stored_store.rotate_secret(created[0].id, new_secret(), 60_000)
    text = create(stored_store)
    write_text(stored_store, text, text.secret)
    expected = {each.id: stored_store.webhook(each.id) for each in (*created, text)}
    revision = stored_store.routing_changes(0).revision
    with closing(Store.open(database_url, SecretKeys([NEW, OLD]))) as both:
        assert both.count_secrets_by_key() == {OLD_ID: 4, "": 1}
        assert both.reencrypt_secrets() == 4
        assert both.reencrypt_secrets() == 0
        assert both.count_secrets_by_key() == {NEW_ID: 5}
    with closing(Store.open(database_url, SecretKeys([NEW]))) as new:
        new.check()
        assert {each: new.webhook(each) for each in expected} == expected
        # Readers with a copy need no other one.
        assert new.routing_changes(0).revision == revision


def test_more_webhooks_than_a_transaction_changes_are_encrypted_again(
    stored_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.secret_rotation.IDS_PER_QUERY", 2)
    for _ in range(5):
        webhook = create(stored_store)
        write_text(stored_store, webhook, webhook.secret)
    assert stored_store.reencrypt_secrets() == 5
    assert stored_store.count_secrets_by_key() == {OLD_ID: 5}


def test_text_of_a_previous_version_is_encrypted_and_other_keys_stay(
    store: Store, database_url: str
) -> None:
    """Without a key in the settings, SQLite has one in a file; another database needs one."""
    webhook = create(store)
    assert columns(store, webhook)[0] == webhook.secret
    key = "" if database_url.startswith("sqlite") else format_secret_key(OLD)
    settings = Settings(database=database_url, secret_key=key)
    assert encrypt_text_secrets(settings) == 1
    assert encrypt_text_secrets(settings) == 0
    stored, _ = columns(store, webhook)
    assert stored.startswith("v1:")
    newer = SecretKeys([NEW])
    with closing(Store.open(database_url, newer)) as other:
        create(other)
    assert encrypt_text_secrets(settings) == 0
    assert store.count_secrets_by_key()[NEW_ID] == 1
    with closing(Store.of(settings)) as opened:
        assert opened.webhook(webhook.id).secret == webhook.secret


@pytest.mark.processes
def test_another_database_needs_a_key_only_for_secrets(mariadb_url: str) -> None:
    settings = Settings(database=mariadb_url)
    assert encrypt_text_secrets(settings) == 0
    with pytest.raises(SecretKeyMissing, match="set REWIND_SECRET_KEY_FILE to a file"):
        Store.of(settings)
    with closing(Store.open(mariadb_url)) as store:
        create(store)
    with pytest.raises(SecretKeyMissing):
        encrypt_text_secrets(settings)


@pytest.fixture
def mariadb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.getfixturevalue("reused_databases").one() as url:
        yield url


def test_sqlite_has_a_key_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    file = tmp_path / "data" / FILE_NAME
    keys = load_secret_keys(settings)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert load_secret_keys(settings).ids == keys.ids
    assert file.read_text() == text
    assert list(file.parent.iterdir()) == [file]
    # Next to the database, wherever that is.
    elsewhere = Settings(data_dir=tmp_path / "other", database=f"sqlite:///{tmp_path}/data/x.db")
    assert load_secret_keys(elsewhere).ids == keys.ids
    assert not (tmp_path / "other").exists()


def test_processes_that_start_at_the_same_time_have_the_same_key(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    found: list[tuple[str, ...]] = []
    start = threading.Barrier(8)

    def load() -> None:
        start.wait()
        found.append(load_secret_keys(settings).ids)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_keys_of_a_file_are_one_per_line_and_the_first_encrypts(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{format_secret_key(NEW)}\n{format_secret_key(OLD)}\n")
    settings = Settings(database="mysql+pymysql://u@h/d", secret_key_file=str(file))
    assert load_secret_keys(settings).ids == (NEW_ID, OLD_ID)


def test_an_unusable_key_file_is_named_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    settings = Settings(data_dir=tmp_path, secret_key_file=str(file))
    with pytest.raises(SecretKeyMissing, match=f"cannot read the key file {file}: No such file"):
        load_secret_keys(settings)
    # A given file is not created: a typing error would make a second key.
    assert not file.exists()
    file.write_text("hunter2\n")
    with pytest.raises(SecretKeyMissing, match=f"the key file {file} has a key") as refused:
        load_secret_keys(settings)
    assert "hunter2" not in str(refused.value)


def test_an_existing_key_file_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    create_key_file(file)
    text = file.read_text()
    with pytest.raises(FileExistsError):
        create_key_file(file)
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_a_sqlite_file_has_no_secret_in_it(tmp_path: Path) -> None:
    make_migrated(sqlite_url(tmp_path))
    with closing(Store.of(Settings(database=sqlite_url(tmp_path)))) as store:
        webhook = create(store)
        secret = store.rotate_secret(webhook.id, new_secret(), 60_000).secret
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert secret.encode() not in content
    assert webhook.secret.encode() not in content
