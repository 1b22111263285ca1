"""Converts a table (CSV) to the inputs of a model that takes rows of numbers: `[rows, features]`.

The first line is a header if none of its cells is a number, or if it contains the names of all features. The features
have names if the model's metadata has `columns`, or if the model has several inputs: an input of one feature has that
feature's name, and otherwise its features are called `name[0]`, `name[1]`, … If the header contains the names of all
features, the columns are found by name, and other columns are ignored. Otherwise the columns are the features in order.

Cells are real values: an integer input with a scale stores real / scale + zero_point, rounded to the nearest (halves to
even) and clipped to the range of its type. Errors name the row, which is 1 for the first line after the header, and the
column.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np

from service.core.errors import InvalidInput, InvalidTensor
from service.core.models.arrays import Array
from service.core.models.signature import DATATYPES, Quantization, TensorSpec
from service.runtime.results import stored_values

_DELIMITERS = (",", ";", "\t")
_SHOWN = 40  # characters of a cell in a message


@dataclass(frozen=True)
class TableInput:
    """An input that takes rows.

    Attributes:
        shapes: the possible shapes `[rows, features]`, in ascending order: one for each bucket, or only one.
    """

    name: str
    datatype: str
    shapes: tuple[tuple[int, ...], ...]
    quantization: Quantization | None = None

    @property
    def features(self) -> int:
        return self.shapes[0][1]

    @staticmethod
    def from_json(members: Any) -> TableInput:
        scale = members.get("quantization")
        quantization = Quantization(scale["scale"], scale["zero_point"]) if scale else None
        return TableInput(members["name"], members["datatype"], tuple(map(tuple, members["shapes"])), quantization)

    @staticmethod
    def of(spec: TensorSpec) -> TableInput:
        """Raises `InvalidTensor` if the input does not take rows."""
        if len(spec.shape) != 2 or spec.shape[1] < 1:
            raise InvalidTensor(
                f"input {spec.name!r} of shape {list(spec.shape)} does not take rows of numbers", tensor=spec.name
            )
        return TableInput(spec.name, spec.datatype, (tuple(spec.shape),), spec.quantization)


class Columns:
    """The columns of a table that are the features of a model."""

    def __init__(self, header: Sequence[str] | None, inputs: Sequence[TableInput], names: Sequence[str]) -> None:
        """
        Args:
            header: the names of the table's columns; None without a header.
            names: the names of the features in the model's metadata; empty if it has none.

        Raises:
            InvalidInput: the table lacks a column, or has a column twice.
        """
        self._inputs = inputs
        count = sum(each.features for each in inputs)
        if names and len(names) != count:
            raise InvalidTensor(f"the model has {count} features, but its metadata has {len(names)} columns")
        known = feature_names(inputs, names)
        stripped = None if header is None else [each.strip() for each in header]
        found = [] if stripped is None else [name for name in known if name in stripped]
        self._width: int | None = None
        if stripped is not None and len(found) == count:
            for name in known:
                if stripped.count(name) > 1:
                    raise InvalidInput(f"the table has the column {name!r} twice")
            self._indices, self._names = [stripped.index(name) for name in known], known
            return
        if stripped is not None and (names or (found and len(inputs) > 1)):
            missing = next(name for name in known if name not in found)
            raise InvalidInput(f"the table has no column {missing!r}", hint=f"its columns are {', '.join(stripped)}")
        self._width = count
        self._indices = list(range(count))
        self._names = stripped if stripped is not None and len(stripped) == count else known
        if stripped is not None and len(stripped) != count:
            raise InvalidInput(f"the table has {len(stripped)} columns, but the model has {count} features")

    def values_of(self, cells: Sequence[str], row: int) -> list[float]:
        """Returns the features in the cells of a row. Raises `InvalidInput` if a cell is not a number."""
        if self._width is not None and len(cells) != self._width:
            raise InvalidInput(f"row {row} has {len(cells)} cells, but the model has {self._width} features")
        return [self._number(cells, index, name, row) for index, name in zip(self._indices, self._names, strict=True)]

    def _number(self, cells: Sequence[str], index: int, name: str, row: int) -> float:
        cell = cells[index] if index < len(cells) else ""
        try:
            return float(cell)
        except ValueError:
            shown = "the cell is empty" if not cell.strip() else f"{cell[:_SHOWN]!r} is not a number"
            raise InvalidInput(f"row {row}, column {name!r}: {shown}") from None

    def tensors_of(self, rows: Sequence[Sequence[float]], first_row: int = 1) -> dict[str, Array]:
        """Returns the inputs for rows of features, by name, `[rows, features]`.

        Raises:
            InvalidInput: an input cannot store a value.
        """
        values = np.array(rows, np.float64).reshape(len(rows), len(self._indices))
        tensors: dict[str, Array] = {}
        start = 0
        for each in self._inputs:
            part = values[:, start : start + each.features]
            self._check(part, each, start, first_row)
            spec = TensorSpec(each.name, each.datatype, part.shape, each.quantization)
            tensors[each.name] = stored_values(part, spec)
            start += each.features
        return tensors

    def _check(self, values: Array, spec: TableInput, start: int, first_row: int) -> None:
        dtype = np.dtype(DATATYPES[spec.datatype])
        if dtype.kind == "f":
            return
        wrong = ~np.isfinite(values)
        what = "is not finite"
        if not wrong.any() and spec.quantization is None and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            wrong = (values != np.rint(values)) | (values < limits.min) | (values > limits.max)
            what = f"is not a whole number from {limits.min} to {limits.max}"
        if wrong.any():
            row, column = map(int, np.argwhere(wrong)[0])
            name = self._names[start + column]
            raise InvalidInput(f"row {first_row + row}, column {name!r}: {values[row, column]:g} {what}")


def read_table(
    data: bytes, inputs: Sequence[TableInput], names: Sequence[str] = (), batches: int = 1
) -> tuple[dict[str, Array], int]:
    """Returns the inputs for the rows of CSV, by name, and the number of rows.

    Args:
        inputs: all inputs of the model.
        names: the names of the features in the model's metadata; empty if it has none.
        batches: the number of rows that a model without buckets takes in one call, if its inputs take one row.

    Raises:
        InvalidInput: the table is malformed, or has no rows or too many.
        InvalidTensor: the model does not take rows.
    """
    for each in inputs:
        if any(len(shape) != 2 or shape[1] != each.features for shape in each.shapes):
            raise InvalidTensor(f"input {each.name!r} does not take rows of numbers", tensor=each.name)
    sizes = sorted({shape[0] for shape in inputs[0].shapes})
    most = max(batches, sizes[-1])
    header, cells = split_table(StringIO(text_of(data), newline=""), feature_names(inputs, names))
    columns = Columns(header, inputs, names)
    rows: list[list[float]] = []
    for row, found in enumerate(cells, 1):
        if row > most:
            raise InvalidInput(
                f"the table has more than {most} rows, which is what the model takes at a time",
                hint="send it to /api/v1/models/NAME/predict, or use octet predict",
            )
        rows.append(columns.values_of(found, row))
    if not rows:
        raise InvalidInput("the table contains no rows of numbers" if header else "the table is empty")
    if len(rows) not in sizes and (sizes != [1] or len(rows) > batches):
        raise InvalidInput(
            f"the table has {len(rows)} rows, but the model takes {', '.join(map(str, sizes))} at a time"
        )
    return columns.tensors_of(rows), len(rows)


def feature_names(inputs: Sequence[TableInput], names: Sequence[str]) -> list[str]:
    """Returns the names of all features: `names`, those of the model's metadata, or those of the inputs."""
    return list(names) or [name for each in inputs for name in _feature_names(each)]


@dataclass(frozen=True)
class Row:
    """A row of a table. `number` is 1 for the first row after the header."""

    header: Sequence[str] | None
    cells: Sequence[str]
    number: int


def inputs_of_row(row: Row, specs: Sequence[TensorSpec], names: Sequence[str] = ()) -> dict[str, Array]:
    """Returns the inputs of a model for one row, by name. The only input of a model may have any shape: the columns are
    then all its elements.

    Raises:
        InvalidInput: the columns are not the features, or a cell is not a value of its input.
        InvalidTensor: the model does not take rows.
    """
    if len(specs) == 1 and len(specs[0].shape) != 2:
        (spec,) = specs
        shape = [1 if size < 0 and axis == 0 else size for axis, size in enumerate(spec.shape)]
        flat = TableInput(spec.name, spec.datatype, ((1, math.prod(shape)),), spec.quantization)
        columns = Columns(row.header, [flat], names)
        tensors = columns.tensors_of([columns.values_of(row.cells, row.number)], row.number)
        return {spec.name: tensors[spec.name].reshape(shape)}
    columns = Columns(row.header, list(map(TableInput.of, specs)), names)
    return columns.tensors_of([columns.values_of(row.cells, row.number)], row.number)


def rows_of(lines: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of CSV. The first line is a header if none of its cells is a number.

    Raises:
        InvalidInput: it is not well-formed CSV.
    """
    header, rows = split_table(lines, ())  # an empty table has neither
    for number, cells in enumerate(rows, 1):
        yield Row(header, cells, number)


def split_table(lines: Iterable[str], names: Sequence[str]) -> tuple[list[str] | None, Iterator[list[str]]]:
    """Returns the header of CSV, or None without one, and the cells of its rows.

    Args:
        names: the names of all features; empty if they are not known.

    Raises:
        InvalidInput: the text is not well-formed CSV. The iterator raises it too.
    """
    rows = _rows(lines)
    first = next(rows, None)
    if first is None:
        return None, rows
    if (names and set(names) <= {cell.strip() for cell in first}) or not any(map(is_number, first)):
        return first, rows
    return None, _chained(first, rows)


def text_of(data: bytes) -> str:
    """Raises `InvalidInput` if `data` is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("the table is not UTF-8 text") from error


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(lines)
    line = next((each for each in remaining if each.strip()), "")
    delimiter = next((each for each in _DELIMITERS if each in line), _DELIMITERS[0])
    reader = csv.reader(itertools.chain([line], remaining), delimiter=delimiter)
    try:
        yield from (row for row in reader if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise InvalidInput(f"line {reader.line_num} of the table is not valid CSV: {error}") from error


def _chained(first: list[str], rows: Iterable[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rows


def _feature_names(spec: TableInput) -> list[str]:
    return [spec.name] if spec.features == 1 else [f"{spec.name}[{index}]" for index in range(spec.features)]


def is_number(cell: str) -> bool:
    """Returns true if a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
