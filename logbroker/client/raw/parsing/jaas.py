"""Parses the JAAS configuration texts of Java clients.

An example is

    org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="word";

Tokens are those of Java's StreamTokenizer: words, quoted texts with backslash escapes, and signs.
No error message quotes the text, which contains a password.

Source: Kafka documentation, "JAAS configuration for Kafka clients"; java.io.StreamTokenizer.
"""

import re
from typing import Final, NamedTuple

from logbroker.errors import ConfigurationError

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<word>[^\s"'=;/]+) | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Token(NamedTuple):
    """A word, a quoted text or a sign; a password may look like a sign."""

    text: str
    is_sign: bool = False


_EQUALS: Final = _Token("=", is_sign=True)
_END: Final = _Token(";", is_sign=True)


class LoginModule(NamedTuple):
    """The module of a text: the last part of its class name, and its options."""

    name: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Return the login module of a text.

    Raises:
        ConfigurationError: the text is malformed, or has more than one module.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != _END or tokens.count(_END) != 1:
        raise ConfigurationError("expected one login module that ends with a semicolon")
    name, flag, *rest = tokens[:-1]
    if flag.is_sign or flag.text.lower() not in CONTROL_FLAGS:
        raise ConfigurationError(f"expected one of {CONTROL_FLAGS} after the module name")
    names, signs, values = rest[::3], rest[1::3], rest[2::3]
    is_odd = len(rest) % 3 or any(sign != _EQUALS for sign in signs)
    if is_odd or any(each.is_sign for each in (name, *names, *values)):
        raise ConfigurationError("expected options of the form NAME=VALUE")
    options = {each.text: value.text for each, value in zip(names, values, strict=True)}
    return LoginModule(name.text.rpartition(".")[2], options)


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ConfigurationError(f"malformed at character {position}")
        position = found.end()
        quoted = found["double"] if found["double"] is not None else found["single"]
        if quoted is not None:
            tokens.append(_Token(_ESCAPE.sub(_meant, quoted)))
        elif found.lastgroup in ("word", "sign"):
            tokens.append(_Token(found[0], is_sign=found.lastgroup == "sign"))
    return tokens


def _meant(escape: re.Match[str]) -> str:
    letter = escape[1]
    return (
        chr(int(letter, 8)) if letter.isdecimal() and letter < "8" else _ESCAPES.get(letter, letter)
    )
