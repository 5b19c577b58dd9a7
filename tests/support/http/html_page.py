"""HTML pages as element trees."""

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder

_VOID: Final = frozenset(("br", "hr", "img", "input", "link", "meta", "wbr"))


class HtmlPage(HTMLParser):
    """A parsed page. Raises if elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.markup: Final = text
        self._open: list[str] = []
        self._builder = TreeBuilder()
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"
        self.root: Final[Element] = self._builder.close()

    def updatepos(self, i: int, j: int) -> int:
        """Keep no position: no test needs it, and it takes a sixth of the time."""
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self._builder.data("\n")
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in _VOID:
            self._builder.end(tag)
        else:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        self._builder.end(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag
        self._builder.end(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self._builder.data(data)

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
