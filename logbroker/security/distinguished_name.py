"""The subject of a certificate as text, which is the name of its owner's principal.

The form is RFC 2253 as in Java (`X500Principal.getName`), which Apache Kafka uses: the most
specific part comes first, `CN=client,OU=payments,O=Example,C=SE`.

Source: RFC 2253; RFC 5280, section 4.1; ITU-T X.690 (DER).
"""

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attribute types with a keyword in RFC 2253; others are shown by their number."""

_STRINGS: Final = {
    12: "utf-8",  # UTF8String
    19: "ascii",  # PrintableString
    20: "latin-1",  # T61String
    22: "ascii",  # IA5String
    27: "latin-1",  # GeneralString
    28: "utf-32-be",  # UniversalString
    30: "utf-16-be",  # BMPString
}
"""The encodings of string types, by their tag."""

_VERSION_TAG: Final = 0xA0
_LONG_FORM: Final = 0x80
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def read_subject(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    try:
        _, start, _ = _element(certificate, 0)
        _, start, _ = _element(certificate, start)
        tag, _, end = _element(certificate, start)
        # The version is optional; serial number, algorithm, issuer and validity follow.
        position = end if tag == _VERSION_TAG else start
        for _ in range(4):
            position = _element(certificate, position)[2]
        _, start, end = _element(certificate, position)
        names = [_relative_name(certificate, *each) for each in _elements(certificate, start, end)]
    except IndexError:
        raise ValueError("the certificate is truncated") from None
    return ",".join(reversed(names))


def _relative_name(data: bytes, _tag: int, start: int, end: int) -> str:
    attributes = []
    for _, inner, _ in _elements(data, start, end):
        _, id_start, id_end = _element(data, inner)
        tag, value_start, value_end = _element(data, id_end)
        attributes.append(
            _attribute(
                _object_id(data[id_start:id_end]),
                tag,
                data[value_start:value_end],
                data[id_end:value_end],
            )
        )
    return "+".join(attributes)


def _attribute(object_id: str, tag: int, value: bytes, encoded: bytes) -> str:
    keyword, encoding = _KEYWORDS.get(object_id), _STRINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{object_id}=#{encoded.hex()}"
    text = value.decode(encoding)
    escaped = "".join(f"\\{each}" if each in _ESCAPED else each for each in text)
    before = len(escaped) - len(escaped.lstrip(" "))
    inner = escaped.strip(" ")
    after = len(escaped) - before - len(inner)
    return f"{keyword}=" + r"\ " * before + inner + r"\ " * after


def _object_id(data: bytes) -> str:
    numbers = [0]
    for byte in data:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _elements(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    while start < end:
        tag, inner, after = _element(data, start)
        yield tag, inner, after
        start = after


def _element(data: bytes, position: int) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the element at `position`."""
    tag, length, start = data[position], data[position + 1], position + 2
    if length & _LONG_FORM:
        size = length & ~_LONG_FORM
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    if start + length > len(data):
        raise IndexError(position)
    return tag, start, start + length
