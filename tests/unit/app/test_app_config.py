from pathlib import Path
from typing import Final

import pydantic
import pytest
from sqlalchemy import make_url

from app.config import ConfigurationError, Settings
from app.domain.mail import MailServer, MailTls


def test_without_variables_every_setting_has_its_default() -> None:
    settings = Settings.load({})
    assert settings.database == "sqlite:///.rewind/rewind.db"
    assert settings.bootstrap_servers == "127.0.0.1:9092"
    assert (settings.port, settings.partitions, settings.history_days) == (8000, 16, 5)
    assert not settings.allow_private_targets


def test_variables_are_read_by_their_prefix_and_others_left_alone() -> None:
    settings = Settings.load(
        {"REWIND_PORT": "8001", "REWIND_LATENESS_S": "1.5", "PORT": "1", "HOME": "/"}
    )
    assert (settings.port, settings.lateness_ms) == (8001, 1_500)


def test_options_go_before_variables_unless_they_are_not_given() -> None:
    environ = {"REWIND_PORT": "8001", "REWIND_HOST": "0.0.0.0"}
    settings = Settings.load(environ, port=8002, host=None)
    assert (settings.port, settings.host) == (8002, "0.0.0.0")


def test_the_embedded_database_lies_in_the_data_folder() -> None:
    settings = Settings.load({"REWIND_DATA_DIR": "/srv/rewind"})
    assert settings.data_dir == Path("/srv/rewind")
    assert settings.database == "sqlite:////srv/rewind/rewind.db"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False)])
def test_a_switch_is_written_in_words(text: str, value: bool) -> None:
    assert Settings.load({"REWIND_ALLOW_PRIVATE_TARGETS": text}).allow_private_targets is value


def test_every_problem_is_in_one_message_with_value_and_what_is_allowed() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(
            {
                "REWIND_PORT": "eighty",
                "REWIND_PARTITIONS": "0",
                "REWIND_ALLOW_PRIVATE_TARGETS": "maybe",
                "REWIND_PROT": "1",
                "REWIND_DATABASE": "sqlite:",
            },
            host="",
        )
    lines = str(refused.value).splitlines()
    assert "REWIND_PORT is 'eighty'; allowed is a whole number from 0 to 65535" in lines
    assert "REWIND_PARTITIONS is '0'; allowed is a whole number from 1 to 10000" in lines
    assert "REWIND_ALLOW_PRIVATE_TARGETS is 'maybe'; allowed is true or false" in lines
    assert "REWIND_HOST is ''; allowed is a text of 1 character or more" in lines
    assert any(line.startswith("REWIND_PROT is no setting; known are REWIND_") for line in lines)
    assert any(line.startswith("REWIND_DATABASE is no URL") for line in lines)
    assert len(lines) == 6


def test_settings_that_contradict_each_other_are_refused_together() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(
            {"REWIND_LEASE_S": "10", "REWIND_HEARTBEAT_S": "4", "REWIND_RETRY_CAP_S": "0.5"},
            connect_timeout_s=60,
            request_bytes_max=2_048,
            event_bytes_max=4_096,
        )
    assert str(refused.value).splitlines() == [
        "REWIND_LEASE_S is 10.0; allowed is three heartbeat_s or more, 12",
        "REWIND_RETRY_CAP_S is 0.5; allowed is retry_base_s or more, 1",
        "REWIND_DELIVERY_TIMEOUT_S is 15.0; allowed is connect_timeout_s or more, 60",
        "REWIND_REQUEST_BYTES_MAX is 2048; allowed is event_bytes_max or more, 4096",
    ]


def test_one_broker_needs_no_zookeeper_and_may_have_one() -> None:
    assert Settings.load({}).brokers == 1
    assert Settings.load({"REWIND_ZOOKEEPER": "zoo:2181/rewind"}).brokers == 1


def test_several_brokers_without_a_zookeeper_are_refused_with_what_to_give() -> None:
    assert Settings.load({"REWIND_BROKERS": "3"}, zookeeper="zoo:2181").brokers == 3
    with pytest.raises(ConfigurationError) as refused:
        Settings.load({"REWIND_BROKERS": "3"})
    assert str(refused.value) == (
        "REWIND_BROKERS is 3 and REWIND_ZOOKEEPER is not given; brokers find each other through a "
        "ZooKeeper: give its HOST:PORT[/chroot]"
    )


def test_each_broker_needs_a_port_that_exists() -> None:
    environ = {"REWIND_BROKERS": "3", "REWIND_ZOOKEEPER": "zoo:2181"}
    assert Settings.load(environ, broker_port=65_533).broker_port == 65_533
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(environ, broker_port=65_534)
    assert str(refused.value).startswith("REWIND_BROKER_PORT is 65534; allowed is 65533 or less")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://rewind:secret-word@db/rewind",
        "mysql://rewind:secret-word@db/rewind",
        "mysql+pymysql://rewind:secret-word@db",
        "rewind:secret-word@db/rewind",
        "secret-word",
        "sqlite://",
        "",
    ],
)
def test_a_database_that_the_store_does_not_know_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="REWIND_DATABASE") as refused:
        Settings.load({"REWIND_DATABASE": url})
    assert "mysql+pymysql://USER" in str(refused.value)
    assert "secret-word" not in str(refused.value)


def test_the_password_of_the_database_is_not_shown() -> None:
    url = "mysql+pymysql://rewind:secret-word@db:3306/rewind"
    settings = Settings.load({"REWIND_DATABASE": url})
    assert settings.database == url
    assert "secret-word" not in repr(settings) + str(settings)


def test_settings_cannot_be_changed() -> None:
    settings = Settings.load({})
    with pytest.raises(pydantic.ValidationError):
        settings.port = 1


def test_the_secret_of_a_listener_is_no_mistake_of_the_other_commands() -> None:
    assert Settings.load({"REWIND_SECRET": "whsec_AAAA"}) == Settings.load({})


@pytest.mark.parametrize(
    "rest",
    [
        "u:sesame@h:port/db",
        "u:pw@sesame@h:1/db",
        "u:sesame@h:1:2/db",
        "u:sesame@h:/db",
        "u:sesame@/",
    ],
)
def test_a_database_url_that_cannot_be_read_is_refused_without_its_password(rest: str) -> None:
    with pytest.raises(ConfigurationError, match="REWIND_DATABASE") as refused:
        Settings.load({"REWIND_DATABASE": f"mysql+pymysql://{rest}"})
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    "rest", ["u:p%40:w/#?@h:3306/db", "u@h/db?ssl_ca=/a/b", "/db", "[::1]:3306/db", "u:@h/a-b"]
)
def test_a_database_url_that_can_be_read_is_taken(rest: str) -> None:
    url = f"mysql+pymysql://{rest}"
    assert Settings.load({"REWIND_DATABASE": url}).database == url
    assert make_url(url).database in ("db", "a-b")


@pytest.mark.parametrize("name", ["", "a b", "a ", "a\n", "düsseldorf", "x" * 65, "a/b"])
def test_a_data_centres_name_fits_headers_and_columns(name: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed are 1 to 64 letters"):
        Settings.load({"REWIND_ORIGIN": name})


@pytest.mark.parametrize("name", ["a", "eu-west_1.zone-b", "X" * 64])
def test_a_data_centre_may_be_called_so(name: str) -> None:
    assert Settings.load({"REWIND_ORIGIN": name}).origin == name


MAIL: Final = {
    "REWIND_SMTP_URL": "smtp://me:s3cret@mail.example:587",
    "REWIND_SMTP_FROM": "Rewind <rewind@example.com>",
}


def test_a_mail_server_needs_a_sender() -> None:
    settings = Settings.load(MAIL)
    assert settings.mail_server == MailServer("mail.example", 587, MailTls.STARTTLS, "me", "s3cret")
    assert Settings.load({}).mail_server is None
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"REWIND_SMTP_FROM": ""}, "REWIND_SMTP_URL is set without REWIND_SMTP_FROM"),
        ({"REWIND_SMTP_URL": ""}, "REWIND_SMTP_FROM is set without REWIND_SMTP_URL"),
        ({"REWIND_SMTP_FROM": "rewind"}, "REWIND_SMTP_FROM is 'rewind'; allowed is an address"),
        ({"REWIND_SMTP_URL": "http://me:s3cret@mail.example"}, "REWIND_SMTP_URL is no mail server"),
        ({"REWIND_SMTP_PASSWORD_FILE": "password"}, "REWIND_SMTP_PASSWORD_FILE is 'password'"),
        (
            {
                "REWIND_SMTP_URL": "smtp://mail.example:587",
                "REWIND_SMTP_PASSWORD_FILE": "password",
            },
            "REWIND_SMTP_PASSWORD_FILE is 'password'",
        ),
    ],
)
def test_an_incomplete_mail_server_is_refused_without_its_password(
    changed: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(MAIL | changed)
    assert named in str(refused.value)
    assert "s3cret" not in str(refused.value)
