"""Who may send requests to a registry, and under which name of its host."""

import base64
import logging
from pathlib import Path

import pytest

from logbroker.errors import ConfigurationError
from logbroker.schemas.access import REREAD_S, RequestAccess, UsersFile, allowed_hosts, read_users
from logbroker.schemas.rest.errors import RequestRejected

USERS = "# a comment\n\nwriter: s3cret, with: comma, write\nreader: other, read\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(USERS)
    return path


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def status_of(access: RequestAccess, authorization: str, *, is_change: bool) -> int:
    try:
        access.expect_permission(authorization, is_change=is_change)
    except RequestRejected as refusal:
        return refusal.status
    return 200


def test_a_role_decides_what_a_user_may_do(path: Path) -> None:
    access = RequestAccess(UsersFile(path))
    writer, reader = basic("writer", "s3cret, with: comma"), basic("reader", "other")
    assert [status_of(access, each, is_change=False) for each in (writer, reader)] == [200, 200]
    assert [status_of(access, each, is_change=True) for each in (writer, reader)] == [200, 403]
    assert access.expect_permission(writer, is_change=True) == "writer"


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Basic",
        "Basic !",
        "Basic /w==",
        "Bearer s3cret",
        basic("writer", "wrong"),
        basic("unknown", ""),
        basic("", ""),
        basic("reader", "s3cret, with: comma"),
    ],
)
def test_a_request_without_the_password_of_a_user_is_rejected(
    path: Path, authorization: str
) -> None:
    access = RequestAccess(UsersFile(path))
    with pytest.raises(RequestRejected) as refused:
        access.expect_permission(authorization, is_change=False)
    assert refused.value.status == 401
    assert refused.value.headers["www-authenticate"].startswith("Basic realm=")


def test_a_changed_file_takes_effect_and_an_invalid_one_does_not(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 0.0
    access = RequestAccess(UsersFile(path, lambda: now_s))
    old, new = basic("reader", "other"), basic("reader", "changed")
    path.write_text("reader: changed, read\n")
    now_s += REREAD_S
    assert status_of(access, new, is_change=False) == 200
    assert status_of(access, old, is_change=False) == 401
    with caplog.at_level(logging.ERROR):
        path.write_text("reader: s3cret\n")
        now_s += REREAD_S
        assert status_of(access, new, is_change=False) == 200
        path.unlink()
        now_s += REREAD_S
        assert status_of(access, new, is_change=False) == 200
    assert "users:1: expected NAME: PASSWORD, ROLE" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "lists no user"),
        ("reader", "users:1: expected NAME: PASSWORD, ROLE with a role of read, write"),
        ("reader: other, admin", "users:1: expected"),
        (": other, read", "users:1: expected"),
        ("reader: , read", "users:1: expected"),
        ("a: b, read\na: c, read", "users:2: the user 'a' is listed twice"),
    ],
)
def test_an_invalid_file_is_rejected_without_its_passwords(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_users(path)
    assert problem in str(refused.value)
    assert "other" not in str(refused.value)


@pytest.mark.parametrize(
    ("listen", "further", "host", "is_accepted"),
    [
        ("127.0.0.1", [], "localhost:8081", True),
        ("127.0.0.1", [], "127.0.0.1", True),
        ("::1", [], "[::1]:8081", True),
        ("127.0.0.1", [], "attacker.example:8081", False),
        ("127.0.0.1", [], "", False),
        ("127.0.0.1", ["registry.test"], "Registry.test", True),
        ("0.0.0.0", [""], "any.example", True),
        ("0.0.0.0", ["registry.test"], "registry.test:8081", True),
        ("0.0.0.0", ["registry.test"], "localhost", False),
    ],
)
def test_only_allowed_names_of_the_host_are_accepted(
    listen: str, further: list[str], host: str, is_accepted: bool
) -> None:
    access = RequestAccess(allowed_hosts=allowed_hosts(listen, further))
    if is_accepted:
        access.expect_known_host(host)
    else:
        with pytest.raises(RequestRejected) as refused:
            access.expect_known_host(host)
        assert refused.value.status == 421
