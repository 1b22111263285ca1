"""The page of what quantization costs, where some networks alone are measured again."""

from __future__ import annotations

from benchmarks.quantization.__main__ import replaced

PAGE = "# Costs\n\nHow.\n\n## A\n\nold a\n\n## B\n\nold b\n"


def test_a_section_takes_the_place_of_its_title_s() -> None:
    assert replaced(PAGE, ["## A\n\nnew a\n"]) == "# Costs\n\nHow.\n\n## A\n\nnew a\n\n## B\n\nold b\n"


def test_a_new_section_comes_last() -> None:
    assert replaced(PAGE, ["## C\n\nnew c\n"]) == f"{PAGE}\n## C\n\nnew c\n"
