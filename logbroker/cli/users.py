"""`logbroker users`: add, list and delete the users that SASL authenticates."""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from logbroker.cli.admin_command import (
    REQUEST_TIMEOUT_S,
    CommandRefused,
    admin_client,
    cluster_options,
    echo_json,
    json_option,
    one_line_errors,
)
from logbroker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    USER_NAME_CHARS_MAX,
    ScramMechanism,
    derive_credential,
    salt_password,
)
from logbroker.security.users import DEFAULT_ITERATIONS, Users

PASSWORD_VARIABLE: Final = "LOGBROKER_USER_PASSWORD"  # noqa: S105  # a variable's name
PASSWORD_CHARS_MIN: Final = 8
SALT_BYTES: Final = 24

_MECHANISMS: Final = {each.sasl_name: each for each in ScramMechanism}

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of a stopped standalone broker, instead of a running one.",
)


@click.group()
def users() -> None:
    """Add, list and delete the users that SASL authenticates.

    With --data-dir the command works on the files of a stopped broker, otherwise through a running
    one, which may also be Apache Kafka.
    """


@users.command()
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(_MECHANISMS)),
    multiple=True,
    help="A mechanism of the user; repeatable. Default: all.",
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="Iterations of the salted password; more make guessing and logging in slower.",
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help=f"Read the password from standard input. Default: {PASSWORD_VARIABLE}, or a prompt.",
)
@data_dir_option
@cluster_options
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
    data_dir: Path | None,
    bootstrap_servers: str,
) -> None:
    """Add a user, or replace its password."""
    if not 0 < len(name) <= USER_NAME_CHARS_MAX:
        raise click.BadParameter(f"allowed are 1 to {USER_NAME_CHARS_MAX} characters")
    password = _read_password(from_stdin=password_stdin)
    chosen = [_MECHANISMS[each] for each in mechanisms or _MECHANISMS]
    with one_line_errors(bootstrap_servers):
        if data_dir is None:
            _add_online(bootstrap_servers, name, chosen, iterations, password)
        else:
            _change_offline(data_dir, lambda old: _added(old, name, chosen, iterations, password))
    click.echo(f"added user {name}", err=True)


@users.command("list")
@json_option
@data_dir_option
@cluster_options
def list_users(as_json: bool, data_dir: Path | None, bootstrap_servers: str) -> None:
    """Print the users with their mechanisms and iterations."""
    with one_line_errors(bootstrap_servers):
        found = _list_online(bootstrap_servers) if data_dir is None else _list_offline(data_dir)
    if as_json:
        echo_json(found)
        return
    for name, mechanisms in found.items():
        shown = " ".join(f"{each}={iterations}" for each, iterations in mechanisms.items())
        click.echo(f"{name} {shown}")


@users.command()
@click.argument("name")
@data_dir_option
@cluster_options
def delete(name: str, data_dir: Path | None, bootstrap_servers: str) -> None:
    """Delete a user; its open connections last until they end or have to re-authenticate."""
    with one_line_errors(bootstrap_servers):
        if data_dir is None:
            _delete_online(bootstrap_servers, name)
        else:
            _change_offline(data_dir, lambda old: _deleted(old, name))
    click.echo(f"deleted user {name}", err=True)


def _read_password(*, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if len(password) < PASSWORD_CHARS_MIN:
        raise click.UsageError(f"the password needs at least {PASSWORD_CHARS_MIN} characters")
    return password


def _added(
    old: Users, name: str, mechanisms: list[ScramMechanism], iterations: int, password: str
) -> Users:
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salt_password(mechanism, password, salt, iterations)
        credential = derive_credential(mechanism, salted, salt, iterations)
        old = old.with_credential(name, mechanism, credential)
    return old


def _deleted(old: Users, name: str) -> Users:
    if not old.credentials(name):
        raise CommandRefused(f"unknown user {name!r}")
    for mechanism in ScramMechanism:
        old = old.without_credential(name, mechanism)
    return old


def _change_offline(data_dir: Path, change: Callable[[Users], Users]) -> None:
    """Change the file of a data directory that no broker uses."""
    from logbroker.registry.local.registry import REGISTRY_FILE, load_users, store_users
    from logbroker.storage.log_directory import LogDirectory

    try:
        directory = LogDirectory.claim(data_dir)
        try:
            if directory.identity is not None and not (data_dir / REGISTRY_FILE).exists():
                raise CommandRefused(
                    f"{data_dir} belongs to a cluster, whose users are in ZooKeeper; use "
                    "--bootstrap-servers"
                )
            store_users(data_dir, change(load_users(data_dir)))
        finally:
            directory.release()
    except (OSError, ValueError) as error:
        raise CommandRefused(f"{data_dir} cannot be changed: {error}") from error


def _list_offline(data_dir: Path) -> dict[str, dict[str, int]]:
    from logbroker.registry.local.registry import load_users

    try:
        found = load_users(data_dir)
    except (OSError, ValueError) as error:
        raise CommandRefused(f"{data_dir} cannot be read: {error}") from error
    return {
        name: {
            mechanism.sasl_name: credential.iterations
            for mechanism, credential in found.credentials(name).items()
        }
        for name in found
    }


def _add_online(
    servers: str, name: str, mechanisms: list[ScramMechanism], iterations: int, password: str
) -> None:
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        UserScramCredentialUpsertion,
    )
    from confluent_kafka.admin import ScramMechanism as ClientMechanism

    changes = [
        UserScramCredentialUpsertion(
            name,
            ScramCredentialInfo(ClientMechanism[each.name], iterations),
            password.encode(),
            secrets.token_bytes(SALT_BYTES),
        )
        for each in mechanisms
    ]
    _alter(servers, changes)


def _list_online(servers: str) -> dict[str, dict[str, int]]:
    # Without its client, the future fails.
    client = admin_client(servers)
    described: Any = client.describe_user_scram_credentials(request_timeout=REQUEST_TIMEOUT_S)
    found = described.result(REQUEST_TIMEOUT_S)
    return {
        name: {
            each.mechanism.name.replace("_", "-"): each.iterations
            for each in found[name].scram_credential_infos
        }
        for name in sorted(found)
    }


def _delete_online(servers: str, name: str) -> None:
    from confluent_kafka.admin import ScramMechanism as ClientMechanism
    from confluent_kafka.admin import UserScramCredentialDeletion

    mechanisms = _list_online(servers).get(name)
    if not mechanisms:
        raise CommandRefused(f"unknown user {name!r}")
    names = [each.replace("-", "_") for each in mechanisms]
    _alter(servers, [UserScramCredentialDeletion(name, ClientMechanism[each]) for each in names])


def _alter(servers: str, changes: list[Any]) -> None:
    client = admin_client(servers)
    altered = client.alter_user_scram_credentials(changes, request_timeout=REQUEST_TIMEOUT_S)
    for future in altered.values():
        future.result(REQUEST_TIMEOUT_S)
