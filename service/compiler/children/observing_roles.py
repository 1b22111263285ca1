"""The roles of children that run models for quantization, on inputs that the parent wrote into a file.

These roles measure the values of tensors, and the differences between two models. The file contains the inputs one
after another. Each input consists of the model's tensors in the signature's order, in C order and without gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from service import runtime
from service.compiler.children.columns import means, products, rounded
from service.compiler.children.handler import handles
from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.files import CLASSES_FILE, OBSERVED_FILE, OUTPUTS_FILE
from service.compiler.messages.observing import (
    CHANNELS,
    COMPARE,
    EXTREMES,
    HISTOGRAMS,
    MOMENTS,
    PAIR,
    SWITCHED,
    ChannelsRequest,
    CompareRequest,
    HistogramsRequest,
    InputCount,
    ModelRequest,
    MomentsRequest,
    ObservedModel,
    PairRequest,
    PairResult,
    SwitchedRequest,
)
from service.compiler.sandbox import Report
from service.core.artifacts.buffers import aligned_empty, as_aligned
from service.core.models.arrays import Array
from service.core.models.signature import TensorSpec
from service.runtime.racing import race


@handles(EXTREMES)
def extremes_role(request: ModelRequest, report: Report) -> InputCount:
    """Runs the model on each input in the file. Writes the minimum and the maximum of every input and output tensor of
    each run.

    `OBSERVED_FILE` is `[runs, tensors, 2]` float32. If a tensor contains a value that is not finite, both are NaN.
    """
    model = _Runner(request.model, request.threads)
    seen = [[_extremes(tensor) for tensor in (*inputs, *model.run(inputs))] for inputs in model.inputs(request.inputs)]
    np.save(OBSERVED_FILE, np.array(seen, np.float32).reshape(len(seen), -1, 2), allow_pickle=False)
    return InputCount(len(seen))


@handles(CHANNELS)
def channels_role(request: ChannelsRequest, report: Report) -> InputCount:
    """Writes the minimum and the maximum of each channel over all inputs, for the outputs `[N, C, ...]` with the
    indices `outputs`.

    `OBSERVED_FILE` is `[channels, 2]` float32, one output after another.
    """
    model = _Runner(request.model, request.threads)
    seen, number = np.zeros((0, 0), np.float32), 0
    for inputs in model.inputs(request.inputs):
        made = model.run(inputs)
        rows = [made[position].swapaxes(0, 1).reshape(made[position].shape[1], -1) for position in request.outputs]
        lows, highs = (np.concatenate([end(row, axis=1) for row in rows]) for end in (np.min, np.max))
        if number:
            lows, highs = np.minimum(lows, seen[:, 0]), np.maximum(highs, seen[:, 1])
        seen = np.stack([lows, highs], axis=1)
        number += 1
    np.save(OBSERVED_FILE, seen, allow_pickle=False)
    return InputCount(number)


@handles(HISTOGRAMS)
def histograms_role(request: HistogramsRequest, report: Report) -> InputCount:
    """Writes a histogram of every input and output, with `bins` equal bins over the range in `ranges`.

    `OBSERVED_FILE` is `[tensors, bins]` int64.
    """
    model = _Runner(request.model, request.threads)
    bins, ranges = request.bins, request.ranges
    counts = np.zeros((len(ranges), bins), np.int64)
    number = 0
    for inputs in model.inputs(request.inputs):
        for row, tensor, (low, high) in zip(counts, (*inputs, *model.run(inputs)), ranges, strict=True):
            row += histogram(tensor, low, high, bins)
        number += 1
    np.save(OBSERVED_FILE, counts, allow_pickle=False)
    return InputCount(number)


@handles(COMPARE)
def compare_role(request: CompareRequest, report: Report) -> InputCount:
    """Compares the outputs of the second model with the first outputs of the first model.

    Writes to `OBSERVED_FILE`, `[outputs, 2]` float64: the sum of squares of the first model's outputs, and the sum of
    squares of the differences. Writes the first output of each model to `OUTPUTS_FILE`, float32.
    """
    models = [_Runner(each, request.threads) for each in request.models]
    sums = np.zeros((len(request.models[1].signature.outputs), 2), np.float64)
    number = 0
    with Path(OUTPUTS_FILE.format(0)).open("wb") as first, Path(OUTPUTS_FILE.format(1)).open("wb") as second:
        for inputs in models[0].inputs(request.inputs):
            made = [model.run(inputs) for model in models]
            for row, real, other in zip(sums, *made, strict=False):
                wide = real.astype(np.float64)
                row += (wide**2).sum(), ((wide - other) ** 2).sum()
            for file, outputs in zip((first, second), made, strict=True):
                file.write(outputs[0].astype(np.float32).tobytes())
            number += 1
    np.save(OBSERVED_FILE, sums, allow_pickle=False)
    return InputCount(number)


@handles(MOMENTS)
def moments_role(request: MomentsRequest, report: Report) -> InputCount:
    """Writes, for each of `layers`, the sums over all inputs of `columns.means` and, if requested, of
    `columns.products`.

    `OBSERVED_FILE` contains these sums one after another, flattened, as float64.
    """
    model = _Runner(request.model, request.threads)
    sums: list[Array] = []
    number = 0
    for inputs in model.inputs(request.inputs):
        tensors, found = (*inputs, *model.run(inputs)), []
        for each in request.layers:
            x = rounded(tensors[each.tensor], *each.rounding)
            found += [means(x, each.windows), *([products(x, each.windows)] if each.products else [])]
        sums = [total + row for total, row in zip(sums, found, strict=True)] if sums else found
        number += 1
    np.save(OBSERVED_FILE, np.concatenate([row.reshape(-1) for row in sums]), allow_pickle=False)
    return InputCount(number)


@handles(SWITCHED)
def switched_role(request: SwitchedRequest, report: Report) -> InputCount:
    """Runs a model once with each row of parameters.

    Only the model's first output is used; call it `y[r]` for row r. `OBSERVED_FILE` is `[rows, 2]` float64 and contains
    for each row r the sum of squares of `y[0]` and the sum of squares of `y[r] - y[0]`, over all inputs. `CLASSES_FILE`
    is `[inputs, rows]` int64 and contains the index of the largest value of `y[r]`.
    """
    model = _Runner(request.model, request.threads)
    rows = [model.values(row) for row in request.rows]
    sums, classes = np.zeros((len(rows), 2), np.float64), []
    for inputs in model.inputs(request.inputs):
        made = [model.run(inputs, row)[0].astype(np.float64) for row in rows]
        sums[:, 0] += (made[0] ** 2).sum()
        sums[:, 1] += [((other - made[0]) ** 2).sum() for other in made]
        classes.append([int(output.reshape(-1).argmax()) for output in made])
    np.save(OBSERVED_FILE, sums, allow_pickle=False)
    np.save(CLASSES_FILE, np.array(classes, np.int64).reshape(len(classes), len(rows)), allow_pickle=False)
    return InputCount(len(classes))


@handles(PAIR)
def pair_role(request: PairRequest, report: Report) -> PairResult:
    """Runs two models alternately for `seconds`. Writes the median duration of each in seconds to `OBSERVED_FILE`,
    `[2]` float64.
    """
    first, second = (_load(each, request.threads) for each in request.models)
    found = race(first, second, request.seconds)
    np.save(OBSERVED_FILE, np.array([found.first_s, found.second_s]), allow_pickle=False)
    return PairResult(found.rounds)


def histogram(values: Array, low: float, high: float, bins: int) -> Array:
    """Counts `values` in equal bins from `low` to `high`. The first and last bin also count the values outside."""
    if high <= low:
        return np.bincount([0], [values.size], bins).astype(np.int64)
    positions = (values.reshape(-1) - np.float32(low)) * np.float32(bins / (high - low))
    return np.bincount(np.clip(positions, 0, bins - 1).astype(np.int32), minlength=bins)


def _extremes(output: Array) -> tuple[float, float]:
    low, high = float(output.min()), float(output.max())
    return (low, high) if np.isfinite(low) and np.isfinite(high) else (np.nan, np.nan)


def _inputs(path: Path, specs: Sequence[TensorSpec]) -> Iterator[list[Array]]:
    """Yields the inputs in the file."""
    tensors = [aligned_empty(spec.shape, spec.dtype) for spec in specs]
    with path.open("rb") as file:
        while True:
            for index, tensor in enumerate(tensors):
                if file.readinto(tensor.reshape(-1).view(np.uint8).data) != tensor.nbytes:
                    if index:
                        raise ValueError("the file ends in the middle of an input")
                    return
            yield tensors


def _load(model: ArtifactFiles, threads: int) -> runtime.Model:
    return runtime.load_files(model.config, *model.paths, threads=threads)


class _Runner:
    """A model with values for its parameters."""

    def __init__(self, model: ObservedModel, threads: int) -> None:
        self._model, self._loaded, self._own = model, _load(model, threads), model.signature.inputs
        self._sets: list[list[Array]] = []
        if model.parameters is not None:
            specs = model.config.signature.inputs[len(self._own) :]
            ends = np.cumsum([math.prod(spec.shape) for spec in specs])[:-1]
            self._sets = [
                [as_aligned(part.reshape(spec.shape)) for part, spec in zip(np.split(row, ends), specs, strict=True)]
                for row in np.load(model.parameters, allow_pickle=False)
            ]
        self._values = self.values([0] * (max(model.owners, default=-1) + 1))

    def inputs(self, path: Path) -> Iterator[list[Array]]:
        """Yields the inputs in the file."""
        return _inputs(path, self._own)

    def values(self, row: Sequence[int]) -> list[Array]:
        """Returns the parameters, from the set that `row` selects for each group."""
        return [self._sets[row[owner]][index] for index, owner in enumerate(self._model.owners)]

    def run(self, inputs: Sequence[Array], values: Sequence[Array] | None = None) -> list[Array]:
        """Returns the outputs for the given parameters, or for those of the first set."""
        return self._loaded.run([*inputs, *(self._values if values is None else values)])
