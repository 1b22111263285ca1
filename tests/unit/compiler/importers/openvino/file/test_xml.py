"""Hostile XML is refused before it costs anything."""

from __future__ import annotations

import pytest

from service.compiler.importers.openvino.file.xml import parse
from service.core.errors import MalformedModel


def test_elements_attributes_and_text() -> None:
    root = parse(b'<net version="11"><dim> 12 </dim><dim>3</dim></net>')
    assert (root.name, root.attributes) == ("net", {"version": "11"})
    assert [child.text for child in root.all("dim")] == ["12", "3"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'<!DOCTYPE net [<!ENTITY a "b">]><net>&a;</net>', "document type"),
        (b'<!DOCTYPE net SYSTEM "file:///etc/passwd"><net/>', "document type"),
        (b"<?php echo 1 ?><net/>", "processing instruction"),
        (b"<net>", "is not XML"),
        (b"", "is not XML"),
        (b"<a>" * 100 + b"</a>" * 100, "deeper than 64"),
        (b"<net " + b" ".join(b'a%d=""' % index for index in range(300)) + b"/>", "300 attributes"),
        (b"<net a='" + b"x" * (1 << 21) + b"'/>", "too long"),
    ],
)
def test_hostile_documents_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(MalformedModel, match=what):
        parse(data)


def test_text_is_cut() -> None:
    assert len(parse(b"<net>" + b"x" * 1000 + b"</net>").text) == 64
