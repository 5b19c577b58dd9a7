"""What each program lets its operator tell its Kafka clients, and what it says of the rest."""

from pathlib import Path

import pytest

from logbroker.audit.audit_log import RULES as AUDIT
from logbroker.client.properties import PropertyRules, find_problems, read_properties
from logbroker.errors import ConfigurationError
from logbroker.mirror.clients import RULES as MIRROR
from logbroker.schemas.client_properties import RULES as REGISTRY

PROGRAMS = [AUDIT, MIRROR, REGISTRY]


def refused(rules: PropertyRules, **properties: str) -> list[tuple[str | None, str]]:
    dotted = {name.replace("__", "."): value for name, value in properties.items()}
    return [(name, text) for name, text in find_problems(dotted, rules)]


@pytest.mark.parametrize("rules", PROGRAMS)
def test_common_properties_are_accepted_by_every_program(rules: PropertyRules) -> None:
    properties = {
        "security__protocol": "SASL_SSL",
        "sasl__mechanisms": "PLAIN",
        "sasl__username": "somebody",
        "sasl__password": "hunter2",
        "client__rack": "a",
    }
    assert refused(rules, **properties) == []
    assert refused(rules) == []


@pytest.mark.parametrize("rules", PROGRAMS)
def test_each_name_that_a_program_decides_is_refused_with_who_decides(rules: PropertyRules) -> None:
    for name in rules.reserved:
        (problem,) = find_problems({name: "1"}, rules)
        assert problem.name == name
        assert problem.text == f"is '1'; {rules.program} sets {name} itself: remove it"


def test_a_program_leaves_what_only_others_decide() -> None:
    assert refused(AUDIT, acks="1") == []
    assert refused(REGISTRY, compression__type="zstd") == []
    assert refused(MIRROR, isolation__level="read_committed") == []
    assert [name for name, _ in refused(AUDIT, isolation__level="read_committed")] == [
        "isolation.level"
    ]


@pytest.mark.parametrize("rules", PROGRAMS)
@pytest.mark.parametrize(
    "name", ["error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit", "on_delivery"]
)
def test_what_no_text_can_be_is_refused_without_an_error_of_pythons(
    rules: PropertyRules, name: str
) -> None:
    assert [refusal[0] for refusal in refused(rules, **{name: "x"})] == [name]


def test_every_problem_is_reported_without_secrets() -> None:
    found = dict(refused(MIRROR, pasword="hunter2", log_level="loud", ssl__key__pem="hunter2"))
    assert found["log_level"].startswith("is 'loud'; the Kafka client rejects it: ")
    assert "the Kafka client has no property pasword; allowed: properties" in found["pasword"]
    assert "hunter2" not in str(found)


def test_what_does_not_fit_together_has_no_name() -> None:
    ((name, text),) = refused(REGISTRY, security__protocol="SASL_SSL", sasl__mechanisms="PLAIN")
    assert name is None
    assert text.startswith("the Kafka client rejects the combination: ")
    # With what the program itself chooses, too.
    ((_, text),) = refused(REGISTRY, reconnect__backoff__ms="5000")
    assert "reconnect.backoff.max.ms" in text


def test_unsupported_token_sources_are_rejected() -> None:
    oidc = {"sasl__mechanism": "OAUTHBEARER", "sasl__oauthbearer__method": "oidc"}
    ((name, text),) = refused(
        AUDIT, **oidc, sasl__oauthbearer__metadata__authentication__type="aws_iam"
    )
    assert name == "sasl.oauthbearer.metadata.authentication.type"
    assert text == "is 'aws_iam', which the audit does not support"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"=hunter2\n", ": line 1 is malformed; expected NAME=VALUE"),
        (b"client.id=a\n\nhunter2", ": line 3 is malformed; expected NAME=VALUE"),
        (b"group.id=x\n", ": group.id is 'x'; the audit sets group.id itself: remove it"),
        (
            b"security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN",
            ": the Kafka client rejects the combination",
        ),
    ],
)
def test_a_file_is_refused_with_option_path_and_problem(
    tmp_path: Path, content: bytes, line: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as refusal:
        read_properties("--client-config", path, AUDIT)
    assert str(refusal.value).startswith(f"--client-config {path}{line}")
    assert "hunter2" not in str(refusal.value)


def test_a_binary_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xff\n")
    with pytest.raises(ConfigurationError, match="cannot read it"):
        read_properties("--client-config", path, AUDIT)
