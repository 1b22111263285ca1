"""Predictions of many inputs: sends several requests at a time, and writes the results in the order of the inputs."""

from __future__ import annotations

import csv
import io
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from service.cli.client import Client
from service.cli.output import Output
from service.cli.predicting.formats import OutputFormat
from service.cli.predicting.inputs import Item
from service.cli.tables import Table, number, text, whole
from service.core.errors import InvalidInput, OctetError
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.printable import printable
from service.runtime.protocol import read_input
from service.runtime.results import Result, picture_size, real_values, result_of, stored_values
from service.runtime.table import inputs_of_row

_MOST_RETRIES = 8
_LONGEST_PAUSE_S = 10.0
_SHOWN_VALUES = 8


@dataclass(frozen=True)
class Predictor:
    """Sends the items of one model to a server.

    Attributes:
        top: the number of classes or boxes of a result; None for the default.
    """

    client: Client
    name: str
    version: int | None
    signature: ModelSignature
    metadata: ModelMetadata
    top: int | None = None

    def predict(self, item: Item) -> Result:
        """Returns the result of an item. Waits and tries again while the server's queue is full.

        Raises:
            OctetError: the server refused the item, or the item does not fit the model.
        """
        for attempt in range(_MOST_RETRIES):
            try:
                return self._predict(item)
            except OctetError as error:
                if error.code != "queue_full" or attempt == _MOST_RETRIES - 1:
                    raise
                time.sleep(min(_LONGEST_PAUSE_S, (error.retry_after_s or 0.1) * 2**attempt))
        raise AssertionError

    def _predict(self, item: Item) -> Result:
        if item.problem is not None:
            raise item.problem
        if item.text is not None:
            if not self.metadata.text:
                raise InvalidInput(
                    f"{item.name!r} is not a file, and {self.name} does not take text",
                    hint="octet push --tokenizer FILE makes it take text",
                )
            pair = {} if item.pair is None else {"text_pair": item.pair}
            return self.client.predict(self.name, {"text": item.text, **pair}, self.version, self.top)
        inputs = self._inputs(item)
        _, outputs = self.client.infer(self.name, list(inputs), list(inputs.values()), self.version)
        real = real_values(outputs, self.signature.outputs)
        size = picture_size(self.signature.inputs, self.metadata)
        return result_of(real, self.metadata, top=self.top, size=size)

    def _inputs(self, item: Item) -> dict[str, Array | bytes]:
        """Returns the inputs of an item by name: pictures as bytes, which the server decodes."""
        specs = self.signature.inputs
        if item.arrays is not None:
            return dict(item.arrays)
        if item.file is not None:
            return {self._only_input(item).name: read_input(item.file)}
        if item.data is not None:
            return {self._only_input(item).name: item.data}
        if item.row is not None:
            return dict(inputs_of_row(item.row, specs, self.metadata.columns))
        if isinstance(item.values, Mapping):
            if set(item.values) != {spec.name for spec in specs}:
                expected = ", ".join(spec.name for spec in specs)
                raise InvalidInput(
                    f"{item.name} does not contain the model's inputs", hint=f"the inputs are {expected}"
                )
            return {spec.name: stored_values(item.values[spec.name], spec) for spec in specs}
        spec = self._only_input(item)
        return {spec.name: stored_values(item.values, spec)}

    def _only_input(self, item: Item) -> TensorSpec:
        if len(self.signature.inputs) != 1:
            names = ", ".join(spec.name for spec in self.signature.inputs)
            raise InvalidInput(f"{item.name} is for one input, but {self.name} has several: {names}")
        return self.signature.inputs[0]


def predict_all(
    predict: Callable[[Item], Result], items: Iterable[Item], parallel: int
) -> Iterator[tuple[Item, Result | OctetError]]:
    """Yields each item with its result or its error, in the order of the items. At most `parallel` requests run at a
    time, and only a few results are held in memory.
    """
    with ThreadPoolExecutor(parallel) as pool:
        pending: deque[tuple[Item, Future[Result]]] = deque()
        try:
            for item in items:
                pending.append((item, pool.submit(predict, item)))
                if len(pending) > 2 * parallel:
                    yield _ended(*pending.popleft())
            while pending:
                yield _ended(*pending.popleft())
        finally:
            for _, future in pending:
                future.cancel()


def show_results(
    output: Output,
    results: Iterable[tuple[Item, Result | OctetError]],
    format: OutputFormat,
    total: int | None = None,
) -> int:
    """Writes the results, with progress on a terminal. Returns the number of items that failed.

    Args:
        total: the number of items, if it is known.
    """
    failures = 0
    counted = (TextColumn("{task.completed:,} predicted"), TimeElapsedColumn())
    of_total = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    columns = (SpinnerColumn(), *(counted if total is None else of_total))
    writer = _WRITERS[format](output)
    with Progress(
        *columns, console=output.progress, transient=True, disable=not output.progress.is_terminal
    ) as progress:
        task = progress.add_task("predict", total=total)
        for item, result in results:
            progress.advance(task)
            if isinstance(result, OctetError):
                failures += 1
                hint = f" ({result.hint})" if result.hint else ""
                output.note(f"{item.name}: {result.message}{hint}")
            else:
                writer.add(item, result)
    writer.end()
    return failures


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Returns a result as rows of a table: one for each class, box or span, and one otherwise."""
    for many in ("classes", "boxes", "spans"):
        if many in result:
            return [dict(each) for each in result[many]]
    if "embedding" in result:
        return [{str(index): value for index, value in enumerate(result["embedding"])}]
    if "outputs" in result:
        return [
            {
                f"{each['name']}[{index}]": value
                for each in result["outputs"]
                for index, value in enumerate(np.ravel(each["values"]).tolist())
            }
        ]
    return [dict(result)]


def _ended(item: Item, future: Future[Result]) -> tuple[Item, Result | OctetError]:
    try:
        return item, future.result()
    except OctetError as error:
        return item, error
    except OSError as error:
        return item, InvalidInput(f"{error.strerror or error}")


class _TableWriter:
    """Shows one line for each item, with the best class, or the first numbers. The boxes of a single item have a line
    each.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._table = Table(text("input"), text("result"))
        self._boxes: list[Mapping[str, Any]] = []

    def add(self, item: Item, result: Result) -> None:
        self._table.add(item.name, _shortened(result))
        self._boxes = result.get("boxes", [])

    def end(self) -> None:
        if self._table.row_count == 1 and self._boxes:
            self._output.show(_table_of_boxes(self._boxes))
        elif self._table.row_count:
            self._output.show(self._table)


class _JsonWriter:
    def __init__(self, output: Output) -> None:
        self._output = output

    def add(self, item: Item, result: Result) -> None:
        self._output.document({"input": item.name, **result})

    def end(self) -> None:
        """Does nothing: each document has been written."""


class _CsvWriter:
    """Writes one line for each row. The first result defines the columns."""

    def __init__(self, output: Output) -> None:
        self._output, self._columns = output, list[str]()

    def add(self, item: Item, result: Result) -> None:
        for row in rows_of(result):
            cells = {"input": item.name, **row}
            if not self._columns:
                self._columns = list(cells)
                self._write(self._columns)
            self._write([cells.get(column, "") for column in self._columns])

    def _write(self, cells: Sequence[Any]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(
            [printable(each) if isinstance(each, str) else each for each in cells]
        )
        self._output.text(f"{line.getvalue()}\n")

    def end(self) -> None:
        """Does nothing: each row has been written."""


_WRITERS: Mapping[OutputFormat, Any] = {
    OutputFormat.TABLE: _TableWriter,
    OutputFormat.JSONL: _JsonWriter,
    OutputFormat.CSV: _CsvWriter,
}


def _table_of_boxes(boxes: Sequence[Mapping[str, Any]]) -> Table:
    edges = ("left", "top", "right", "bottom")
    table = Table(whole("label"), number("score"), *map(number, edges))
    for box in boxes:
        table.add(box["label"], f"{box['score']:.1%}", *(f"{box[edge]:.1%}" for edge in edges))
    return table


def _shortened(result: Result) -> str:
    """Returns a result as one line: labels with their scores, or the first values."""
    for many in ("classes", "boxes", "spans"):
        if many in result:
            return ", ".join(f"{each['label']} {each['score']:.3g}" for each in result[many]) or "nothing found"
    values = list(rows_of(result)[0].values())
    shown = ", ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values[:_SHOWN_VALUES])
    return f"{shown}, … ({len(values)} values)" if len(values) > _SHOWN_VALUES else shown
