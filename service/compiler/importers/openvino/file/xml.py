"""Parses hostile XML into elements.

The parser is Expat. Its handlers stop at anything that an IR does not contain: document types, entities and processing
instructions. Depth, elements, attributes and their lengths are bounded, so memory is bounded by the file's
size, and time is linear in it. Text between elements is cut, because an IR has only attributes, except for the sizes of
dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from service.core.errors import MalformedModel

_DEEPEST = 64
_MOST_ELEMENTS = 1 << 21
_MOST_ATTRIBUTES = 256
_LONGEST_NAME = 1 << 10
_LONGEST_VALUE = 1 << 20
_LONGEST_TEXT = 64  # of the text of an element; an IR's only text is the size of a dimension


@dataclass(eq=False)
class Element:
    """An element of the document.

    Attributes:
        text: the text before its first child, cut to 64 characters.
    """

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, name: str) -> Iterator[Element]:
        """Yields the children called `name`."""
        return (child for child in self.children if child.name == name)

    def first(self, name: str) -> Element | None:
        return next(self.all(name), None)


def parse(data: bytes) -> Element:
    """Returns the root element.

    Raises:
        MalformedModel: the bytes are not well-formed XML, or contain what an IR does not.
    """
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.StartDoctypeDeclHandler = lambda *_: _malformed("has a document type (DOCTYPE)")
    parser.EntityDeclHandler = lambda *_: _malformed("declares an entity")
    parser.ExternalEntityRefHandler = lambda *_: _malformed("refers to an external entity")
    parser.ProcessingInstructionHandler = lambda *_: _malformed("has a processing instruction")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as exc:
        _malformed(f"is not XML: {exc}"[:200])
    assert builder.root is not None  # expat refuses a document without an element
    return builder.root


class _Builder:
    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= _DEEPEST or self._count > _MOST_ELEMENTS:
            _malformed(f"nests elements deeper than {_DEEPEST}, or has more than {_MOST_ELEMENTS}")
        if len(attributes) > _MOST_ATTRIBUTES:
            _malformed(f"has an element with {len(attributes)} attributes; the limit is {_MOST_ATTRIBUTES}")
        names = (name, *attributes)
        if any(len(each) > _LONGEST_NAME for each in names) or any(
            len(each) > _LONGEST_VALUE for each in attributes.values()
        ):
            _malformed("has a name or a value that is too long")
        element = Element(name, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _name: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        element = self._open[-1]
        if not element.children and len(element.text) < _LONGEST_TEXT:
            element.text = (element.text + text.strip())[:_LONGEST_TEXT]


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the graph {what}")
