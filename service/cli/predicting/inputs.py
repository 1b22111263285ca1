"""The inputs of `octet predict`: texts, files, folders, URLs of the server, and lines, CSV or JSON of a file or stdin.

Every input becomes an `Item`, the data of one prediction. Files of pictures are read when they are sent.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from service.cli.predicting.formats import Format
from service.core.errors import InvalidInput

if TYPE_CHECKING:
    from service.core.models.arrays import Array
    from service.runtime.table import Row

STDIN = "-"
_URLS = ("http://", "https://")
_ARRAYS = (".npy", ".npz")
_LINE = "line "  # the beginning of the names of lines from stdin
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
_MAX_LINE_CHARACTERS = 64 << 20


_BY_SUFFIX: Mapping[str, Format] = {
    ".txt": Format.LINES,
    ".csv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSON,
}
_FILES = (*_PICTURES, ".wav", ".npy", ".npz")
_SUFFIXES = (*_FILES, *_BY_SUFFIX)


@dataclass(frozen=True)
class Item:
    """The data of one prediction. One of `file`, `data`, `arrays`, `text`, `values`, `row` and `problem` is set.

    Attributes:
        name: the name to show: a file's path, a line's number, or the beginning of a text.
        file: a picture, a sound, or tensors in a .npy or .npz file.
        data: the content of such a file.
        arrays: a tensor for each input, by the input's name.
        pair: the second text of a pair, whose first is `text`.
        values: real values for the only input, or for each input by name.
        problem: the reason why the input cannot be read.
    """

    name: str
    file: Path | None = None
    data: bytes | None = None
    arrays: Mapping[str, Array] | None = None
    text: str | None = None
    pair: str | None = None
    values: Any = None
    row: Row | None = None
    problem: InvalidInput | None = None


def items_of(
    given: Iterable[str], format: Format | None, stdin: TextIO, fetch: Callable[[str], bytes]
) -> Iterator[Item]:
    """Yields the items of the command's arguments, in order.

    Args:
        given: files, folders, URLs, `-` for stdin, or texts. Any other argument is a text, unless it ends like the name
            of a file.
        format: the format of files with several inputs; None to detect it.
        fetch: returns the content at a URL.

    Raises:
        InvalidInput: a file does not exist, a folder contains nothing to predict, or a line is malformed.
    """
    for each in given:
        path = Path(each)
        if each == STDIN:
            yield from _lines(stdin, format, _LINE)
        elif each.startswith(_URLS) and not any(map(str.isspace, each)):
            yield Item(each, data=fetch(each))
        elif _is_dir(path):
            yield from _in_folder(path)
        elif _is_file(path):
            yield from _in_file(path, format)
        elif path.suffix.lower() in _SUFFIXES and not any(map(str.isspace, each)):
            raise InvalidInput(f"{each} does not exist")
        else:
            yield Item(each if len(each) <= 40 else f"{each[:39]}…", text=each)


def count_of(given: Sequence[str], format: Format | None) -> int | None:
    """Returns the number of items that `items_of` yields; None if only reading the files can tell."""
    paths = [Path(each) for each in given]
    if STDIN in given or format is not None:
        return None
    if any(path.suffix.lower() in (*_BY_SUFFIX, *_ARRAYS) for path in paths if _is_file(path)):
        return None
    files = [_files_in(path) if _is_dir(path) else [path] for path in paths]
    if any(each.suffix.lower() in _ARRAYS for found in files for each in found):
        return None
    return sum(map(len, files))


def has_one_sample(given: str) -> bool:
    """Returns true for a file of which no line or element is an input of its own. A tensor may be several samples."""
    path = Path(given)
    return _is_file(path) and path.suffix.lower() not in _BY_SUFFIX


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a text may be too long for a path
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _in_folder(folder: Path) -> Iterator[Item]:
    found = _files_in(folder)
    if not found:
        raise InvalidInput(f"{folder} contains no pictures, and no .wav, .npy or .npz files")
    for path in found:
        yield Item(str(path), file=path)


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _FILES)


def _in_file(path: Path, format: Format | None) -> Iterator[Item]:
    chosen = format or _BY_SUFFIX.get(path.suffix.lower())
    if chosen is None:
        yield Item(str(path), file=path)
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from _lines(file, chosen, f"{path}:")


def _lines(file: TextIO, format: Format | None, name: str) -> Iterator[Item]:
    """Yields the items of a file's lines. Without a format, lines that begin with a bracket are JSON."""
    try:
        if format is None:
            first = file.readline(_MAX_LINE_CHARACTERS)
            format = Format.JSONL if first.lstrip()[:1] in ("{", "[") else Format.LINES
            yield from _FORMATS[format](itertools.chain([first] if first else [], file), name)
        else:
            yield from _FORMATS[format](file, name)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{'stdin' if name == _LINE else name.rstrip(':')} is not UTF-8 text") from error


def _texts(lines: Iterable[str], name: str) -> Iterator[Item]:
    for number, line in enumerate(lines, 1):
        if text := line.rstrip("\r\n"):
            yield Item(f"{name}{number}", text=text)


def _json_lines(lines: Iterable[str], name: str) -> Iterator[Item]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{name}{number} is not well-formed JSON: {error}") from error
        yield _json_item(value, f"{name}{number}")


def _json_document(lines: Iterable[str], name: str) -> Iterator[Item]:
    """Yields the elements of a list of texts or objects; any other document is one item."""
    try:
        value = json.loads("".join(lines))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name.rstrip(':')} is not well-formed JSON: {error}") from error
    if isinstance(value, list) and value and all(isinstance(each, str | dict) for each in value):
        for number, each in enumerate(value, 1):
            yield _json_item(each, f"{name}{number}")
        return
    yield _json_item(value, name.rstrip(":"))


def _json_item(value: Any, name: str) -> Item:
    if isinstance(value, str):
        return Item(name, text=value)
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        pair = value.get("text_pair")
        if pair is not None and not isinstance(pair, str):
            raise InvalidInput(f"{name}: text_pair is not a string")
        return Item(name, text=value["text"], pair=pair)
    return Item(name, values=value)


def _rows(lines: Iterable[str], name: str) -> Iterator[Item]:
    """Yields the rows of CSV. Of several columns that are not numbers, `text` is taken."""
    from service.runtime.table import rows_of

    for row in rows_of(lines):
        yield _row_item(row, f"{name}{row.number + (row.header is not None)}")


def _row_item(row: Row, name: str) -> Item:
    from service.runtime.table import is_number

    if row.header is not None and "text" in row.header:
        text = _cell(row, "text", name)
        return Item(name, text=text, pair=_cell(row, "text_pair", name) if "text_pair" in row.header else None)
    if len(row.cells) == 1 and not is_number(row.cells[0]):
        return Item(name, text=row.cells[0])
    return Item(name, row=row)


def _cell(row: Row, column: str, name: str) -> str:
    index = (row.header or ()).index(column)
    if index >= len(row.cells):
        raise InvalidInput(f"{name} has no cell in the column {column}")
    return row.cells[index]


_FORMATS = {Format.LINES: _texts, Format.CSV: _rows, Format.JSONL: _json_lines, Format.JSON: _json_document}
