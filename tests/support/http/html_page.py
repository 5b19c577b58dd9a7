"""HTML pages as element trees."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder

_VOID: Final = frozenset(("br", "hr", "img", "input", "link", "meta", "wbr"))

_NAME: Final = r"""[^\s"'<>/=]+"""
_VALUE: Final = """"([^"]*)"|'([^']*)'"""
_ATTRIBUTE: Final = re.compile(rf"\s+({_NAME})(?:=(?:{_VALUE}))?")
_TAG: Final = re.compile(
    rf"""<(?:!doctype html|(/?)([a-z][a-z0-9]*)((?:\s+{_NAME}(?:="[^"]*"|='[^']*')?)*)\s*(/?))>""",
    re.IGNORECASE,
)
"""Groups: a slash if it closes its element, the name, the attributes, a slash if it is empty."""


class HtmlPage:
    """A parsed page. Raises if elements are not closed in order, or a `<` begins no tag.

    It reads the HTML that our templates are written in, in a third of the time of `html.parser`.
    """

    def __init__(self, text: str) -> None:
        self.markup: Final = text
        self._open: list[str] = []
        self._builder = TreeBuilder()
        end = 0
        for tag in _TAG.finditer(text):
            self._add_text(text[end : tag.start()])
            end = tag.end()
            if tag[2] is not None:
                self._add_tag(tag)
        self._add_text(text[end:])
        assert not self._open, f"never closed: {self._open}"
        self.root: Final[Element] = self._builder.close()

    def _add_text(self, text: str) -> None:
        assert "<" not in text, f"no tag: {text}"
        if self._open and text:
            self._builder.data(unescape(text))

    def _add_tag(self, tag: re.Match[str]) -> None:
        closing, name, attributes, empty = tag[1], tag[2].lower(), tag[3], tag[4]
        if closing:
            assert self._open, f"</{name}> closes nothing"
            assert self._open.pop() == name
            self._builder.end(name)
            return
        if name in ("script", "style"):
            # A browser reads no markup in it.
            assert tag.string.startswith(f"</{name}>", tag.end()), f"a page has its own {name}"
        if name == "br":
            self._builder.data("\n")
        self._builder.start(name, _attributes(attributes) if attributes else {})
        if empty or name in _VOID:
            self._builder.end(name)
        else:
            self._open.append(name)

    def all(self, path: str) -> list[Element]:
        """Return the elements of an ElementTree path, such as `.//tr[@data-live-id]`."""
        return self.root.findall(path)

    def one(self, path: str) -> Element:
        """Return the only element of a path."""
        found = self.all(path)
        assert len(found) == 1, f"{len(found)} elements are {path}"
        return found[0]

    def texts(self, path: str) -> list[str]:
        """Return the text of each element of a path."""
        return [text_of(element) for element in self.all(path)]

    @property
    def main(self) -> str:
        """Return the text of the element `main`."""
        return text_of(self.one(".//main"))

    def field(self, name: str) -> str:
        """Return the value of a form field in `main`."""
        return value_of(self.one(f".//main//*[@name='{name}']"))

    def error_of(self, name: str) -> str:
        """Return the error text that a field refers to."""
        field = self.one(f".//main//*[@name='{name}']")
        assert field.get("aria-invalid") == "true", f"{name} is not marked as wrong"
        described_by = field.get("aria-describedby", "").split()
        described = [element for element in self.root.iter() if element.get("id") in described_by]
        return " ".join(text_of(each) for each in described if "error" in each.get("class", ""))

    def fields(self, form: str) -> dict[str, str]:
        """Return the values that a browser would submit for the form at a path."""
        return dict(_sent(self.one(form)))


def _attributes(text: str) -> dict[str, str]:
    return {
        name.lower(): unescape(double or single)
        for name, double, single in _ATTRIBUTE.findall(text)
    }


def text_of(element: Element) -> str:
    """Return the visible text of an element with normalized spaces."""
    return " ".join("".join(_shown(element)).split())


def _shown(element: Element) -> Iterator[str]:
    if "hidden" in element.attrib:
        return
    yield element.text or ""
    for child in element:
        yield from _shown(child)
        yield child.tail or ""


def value_of(field: Element) -> str:
    """Return the value of a form field."""
    if field.tag == "textarea":
        return "".join(field.itertext())
    if field.tag == "select":
        options = field.findall(".//option")
        chosen = [option for option in options if "selected" in option.attrib] or options[:1]
        return chosen[0].get("value", text_of(chosen[0])) if chosen else ""
    return field.get("value", "")


def _sent(form: Element) -> Iterator[tuple[str, str]]:
    for field in form.iter():
        name = field.get("name")
        if name is None or field.tag not in ("input", "select", "textarea"):
            continue
        if field.get("type") in ("checkbox", "radio") and "checked" not in field.attrib:
            continue
        yield name, value_of(field)
