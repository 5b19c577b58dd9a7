"""Principals are written and read as Kafka's tools write them."""

import pytest

from logbroker.security.principal import ANONYMOUS, Principal


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:ANONYMOUS", ANONYMOUS),
        ("User:*", Principal("User", "*")),
        ("User:CN=host,OU=a:b,C=DE", Principal("User", "CN=host,OU=a:b,C=DE")),
        ("Group:admins", Principal("Group", "admins")),
    ],
)
def test_the_text_of_a_principal_is_parsed_and_printed(text: str, principal: Principal) -> None:
    assert Principal.parse(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:", ":"])
def test_a_text_without_kind_or_name_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected KIND:NAME"):
        Principal.parse(text)
