"""Checks that the pages for developers name existing files, folders and passes, and list every folder; and that the
links of all pages lead somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import grimp
import pytest

from service.compiler.lowering.pass_order import ORDER
from tests.support.documented import pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs" / "developers").glob("*.md")), ROOT / "CONTRIBUTING.md"]
# Paths from the root of the checkout. Names in capitals, such as FORMAT, and one-letter names are placeholders.
_PATH = re.compile(r"`((?:service|tests|docs|scripts|benchmarks)/[\w./+-]+)`")
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b(?!\.md)|/[a-z]/")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_SECTION = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_named_files_exist(page: Path) -> None:
    names = [name for name in _PATH.findall(page.read_text()) if not _PLACEHOLDER.search(name)]
    assert [name for name in names if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_linked_pages_exist(page: Path) -> None:
    assert [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_linked_sections_exist(page: Path) -> None:
    missing = []
    for link, section in _SECTION.findall(page.read_text()):
        target = page.parent / link if link else page
        if target.suffix == ".md" and section not in _sections(target):
            missing.append(f"{link}#{section}")
    assert missing == []


def _sections(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub computes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


_MOST_MODULES = 20
_MOST_LINES = 400
_SOURCES = ("benchmarks", "examples", "scripts", "service", "tests", "tools")
_SUFFIXES = (".py", ".cc", ".h", ".hpp", ".c", ".cuh")
_LONG = ("service/compiler/importers/onnx/node.py",)  # files that are still longer
_COMPILER = ("| folder | contents |", "CONTRIBUTING.md")
# Header of a table of folders, its page, and the folder whose content it lists.
_TABLES = (
    ("| folder | contents | may import |", "CONTRIBUTING.md", "service"),
    (*_COMPILER, "service/compiler"),
    ("| folder | tests |", "docs/developers/tour.md", "tests"),
    ("| folder | contents |", "benchmarks/README.md", "benchmarks"),
)


def _first_column(header: str, page: str) -> list[str]:
    """Returns the names in the first column of the table with this header, in order."""
    rows = (ROOT / page).read_text().partition(header + "\n")[2].split("\n\n")[0].splitlines()[1:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def _folders(parent: str) -> set[str]:
    return {each.parent.name for each in (ROOT / parent).glob("*/*") if each.suffix in (".py", ".cc", ".md")} | {
        each.parents[1].name for each in (ROOT / parent).glob("*/*/*.*") if each.parent.name != "__pycache__"
    }


@pytest.mark.parametrize(("header", "page", "parent"), _TABLES)
def test_a_table_lists_every_folder(header: str, page: str, parent: str) -> None:
    assert {name.removeprefix(f"{parent}/") for name in _first_column(header, page)} == _folders(parent)


def test_the_other_folders_exist() -> None:
    names = _first_column("| folder | contents |", "docs/developers/tour.md")
    assert [name for name in names if not (ROOT / name).is_dir()] == []


def test_a_package_of_the_compiler_imports_only_those_below_it_in_the_table() -> None:
    graph = grimp.build_graph("service", cache_dir=None)
    names = [f"service.compiler.{name}" for name in _first_column(*_COMPILER)]
    wrong = [
        f"{low} -> {high}"
        for number, high in enumerate(names)
        for low in names[number + 1 :]
        if graph.find_shortest_chain(low, high, as_packages=True)
    ]
    assert wrong == []


def test_the_table_of_the_cluster_lists_every_test() -> None:
    names = _first_column("| file | what happens |", "tests/cluster/README.md")
    assert set(names) == {path.name for path in (ROOT / "tests" / "cluster").glob("test_*.py")}


def test_passes_are_named_as_in_their_order() -> None:
    pages = [*PAGES, *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    named = {(page.name, name) for page in pages for name in re.findall(r"[Pp]ass `([\w-]+)`", page.read_text())}
    assert {page for page, _ in named} >= {"speed.md", "debug-a-wrong-result.md"}
    assert [each for each in sorted(named) if each[1] not in ORDER] == []


def test_folders_have_few_modules() -> None:
    """Folders of importers with one file for each family of operators are exempt."""
    packages = {path.parent for path in (ROOT / "service").rglob("*.py") if path.parent.name != "operators"}
    counts = {str(each.relative_to(ROOT)): len(list(each.glob("[!_]*.py"))) for each in packages}
    assert {name: count for name, count in counts.items() if count > _MOST_MODULES} == {}


def test_source_files_are_short() -> None:
    paths = (path for folder in _SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in _SUFFIXES)
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in paths}
    long = {name: count for name, count in lines.items() if count > _MOST_LINES}
    assert {name: count for name, count in long.items() if name not in _LONG} == {}
