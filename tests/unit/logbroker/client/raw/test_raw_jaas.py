import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.raw.parsing.jaas import LoginModule, parse_jaas
from logbroker.errors import ConfigurationError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def quoted(text: str) -> str:
    """As Java's StreamTokenizer reads a text back, whatever is in it."""
    escaped = "".join(f"\\{each}" if each in '\\"' else each for each in text)
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


def test_a_module_has_the_last_part_of_its_name_and_its_options() -> None:
    text = f'{PLAIN} required username="me" password="word";'

    assert parse_jaas(text) == LoginModule(
        "PlainLoginModule", {"username": "me", "password": "word"}
    )


def test_a_module_shaded_by_somebody_is_the_same_module() -> None:
    assert parse_jaas(f"kafkashaded.{PLAIN} required ;").name == "PlainLoginModule"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r'"a\nb\tc"', "a\nb\tc"),
        (r'"\101\7"', "A\x07"),
        (r'"\400"', " 0"),
        ("'it is \"so\"'", 'it is "so"'),
        ('"a;b=c //d"', "a;b=c //d"),
        ("plain-word_1$", "plain-word_1$"),
        ('""', ""),
        ('";"', ";"),
        ("'='", "="),
    ],
)
def test_a_value_is_what_java_would_read(written: str, meant: str) -> None:
    assert parse_jaas(f"{PLAIN} required password={written};").options == {"password": meant}


@given(st.text(max_size=30), st.text(max_size=30))
def test_every_name_and_password_can_be_written(username: str, password: str) -> None:
    text = f"{PLAIN} required username={quoted(username)} password={quoted(password)};"

    assert parse_jaas(text).options == {"username": username, "password": password}


def test_lines_and_remarks_may_stand_between() -> None:
    text = f'{PLAIN} required // who\n  username="me" /* and\n what */ password="word"\n;'

    assert parse_jaas(text).options == {"username": "me", "password": "word"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret-word",
        f'{PLAIN} required password="secret-word"',
        f'{PLAIN} password="secret-word";',
        f'{PLAIN} required password "secret-word";',
        f'{PLAIN} required "secret-word";',
        f"{PLAIN} required password='secret-word;",
        f'{PLAIN} required password="secret-word"; {PLAIN} required ;',
        f"{PLAIN} required password=secret-word=;",
        f'{PLAIN} required password = = "secret-word";',
    ],
)
def test_what_is_no_login_module_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_jaas(text)

    assert "secret-word" not in str(refused.value)


@given(st.text(alphabet="ab =;\"'\\/*.\n", max_size=40))
def test_anything_is_a_module_or_a_refusal(text: str) -> None:
    try:
        parse_jaas(text)
    except ConfigurationError:
        return
    assert text.rstrip().endswith((";", "/", "\n")) or "//" in text
