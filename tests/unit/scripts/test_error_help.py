"""The page `docs/errors.md`: each error has a section that says what to do, with an example."""

from __future__ import annotations

import re

import pytest

from scripts.error_help import MISSING, PAGE, kinds, sections, updated
from service.core.errors import OctetError

CODES = {kind.code: kind for kind in kinds()}


def test_the_page_has_the_errors_of_the_code() -> None:
    page = PAGE.read_text()
    assert updated(page) == page, "run python -m scripts.error_help"


def test_every_error_of_the_service_is_on_the_page() -> None:
    everything = [OctetError]
    for kind in everything:
        everything.extend(kind.__subclasses__())
    codes = {kind.code for kind in everything if kind.__module__.startswith(("service.", "octet."))}
    assert codes - {OctetError.code} == CODES.keys()


@pytest.mark.parametrize("code", CODES)
def test_a_section_has_a_remedy_and_an_example(code: str) -> None:
    text = sections(PAGE.read_text())[code]
    assert MISSING not in text
    remedy, example = re.fullmatch(r"(.+)\n\n```text\n(.+)\n```", text, re.DOTALL).groups()  # type: ignore[union-attr]
    assert len(remedy) > 60
    assert example.startswith((f"error ({code}): ", "HTTP/1.1 ", f"{CODES[code].__name__}: "))


def test_a_new_error_gets_a_section_that_is_to_be_written() -> None:
    page = updated("# Errors\n\n## `gone`\nHTTP 400. It.\n\nText.\n\n## `not_found`\nHTTP 1. Old.\n\nLook again.\n")
    assert "`gone`" not in page
    assert "## `not_found`\nHTTP 404. There is no such resource.\n\nLook again.\n" in page
    assert f"## `queue_full`\nHTTP 429. The model's queue is full.\n\n{MISSING}\n" in page
