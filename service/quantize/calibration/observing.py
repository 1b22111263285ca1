"""Runs compiled models on a calibration set, with only a few inputs in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

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
    Columns,
    CompareRequest,
    HistogramsRequest,
    InputCount,
    ModelRequest,
    MomentsRequest,
    ObservedModel,
    PairRequest,
    SwitchedRequest,
)
from service.compiler.messages.role import Request, Result, Role
from service.compiler.sandbox import Access, run_child
from service.compiler.sandbox.policy import unlimited
from service.core.builds.build import Progress
from service.core.errors import BuildFailed, InvalidInput
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.quantize.calibration.building import build
from service.quantize.calibration.data import Data
from service.quantize.calibration.methods import BINS, Statistics

_PART_BYTES = 64 << 20  # limit of the inputs in one file, which contains at least one input
_MOST_IN_PART = 32
_MOST_ANSWER_BYTES = 1 << 30
_MOST_SUMMED_BYTES = 256 << 20  # limit of the moments that one child sums, which are at least the moments of one layer
Tick = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Moments:
    """The observed moments of the columns of a layer's operand.

    Attributes:
        means: the mean column, `[groups, K]`.
        products: the result of `columns.products`, summed over all inputs; None if it was not requested.
    """

    means: Array
    products: Array | None


class Machine(Protocol):
    """The interface that a calibration session uses to build and run models."""

    def build(self, source: Path, directory: Path) -> ArtifactFiles:
        """Builds an ONNX file for this machine, in a new directory. Raises the errors of `building.build`."""

    def discard(self, built: ArtifactFiles) -> None:
        """Deletes a built model."""

    def run(self, role: Role[Request, Result], request: Request, directory: Path, files: Iterable[Path]) -> None:
        """Runs a role of `compiler.children.observing_roles`. The role reads `files` and writes other files to
        `directory`.
        """


@dataclass(frozen=True)
class Children:
    """A `Machine` that builds and runs models in sandboxed children. The process itself must have read only files of
    its own user.

    Attributes:
        shapes: the shapes of inputs that the file leaves open.
    """

    settings: Settings
    progress: Progress
    shapes: Mapping[str, Sequence[int]]

    def build(self, source: Path, directory: Path) -> ArtifactFiles:
        return build(source, directory, self.progress, self.settings, self.shapes)

    def discard(self, built: ArtifactFiles) -> None:
        for path in built.paths:
            path.unlink()

    def run(self, role: Role[Request, Result], request: Request, directory: Path, files: Iterable[Path]) -> None:
        run_child(
            role.name,
            request.to_json(),
            access=Access(readable=tuple(files), writable=(directory,)),
            limits=unlimited(_MOST_ANSWER_BYTES),
            allow_unsandboxed=self.settings.allow_unsandboxed,
        )


@dataclass
class CalibrationSession:
    """Builds and runs the models of one calibration in a scratch directory.

    Attributes:
        scratch: an empty directory; the caller removes it.
        threads: the number of threads with which models run; 0 means all cores.
        tick: called with the name of the task, the number of items done, and the number of all items.
    """

    scratch: Path
    machine: Machine
    threads: int = 0
    tick: Tick = lambda what, number, total: None
    _count: int = 0

    def build(self, model: bytes) -> ObservedModel:
        """Builds an ONNX file for this machine. Raises the errors of `building.build`."""
        directory = self._directory()
        source = directory / "model.onnx"
        source.write_bytes(model)
        built = self.machine.build(source, directory)
        return ObservedModel(built.config, built.library, built.constants)

    def with_parameters(
        self, built: ObservedModel, owners: Sequence[int], sets: Sequence[Sequence[Array]]
    ) -> ObservedModel:
        """Returns the model with values for its parameters; see `ObservedModel`.

        Args:
            sets: the values of all parameters, for each set.
        """
        path = self._directory() / "parameters.npy"
        np.save(path, np.stack([np.concatenate([each.reshape(-1) for each in values]) for values in sets]))
        return replace(built, parameters=path, owners=tuple(owners))

    def statistics(
        self, built: ObservedModel, data: Data, histograms: bool, names: Sequence[str] = ()
    ) -> list[Statistics]:
        """Returns the statistics of each input and output of `built`. Makes one pass over `data`, or two if histograms
        are requested.

        Args:
            names: how errors and results name the inputs and outputs, if they differ from those of the signature.

        Raises:
            InvalidInput: see `Data.inputs`. Also raised if a tensor has a value that is not finite.
        """
        names = names or [spec.name for spec in (*built.signature.inputs, *built.signature.outputs)]
        parts = []
        for directory, number in self._parts("extremes", data, built.signature):
            self._run(EXTREMES, partial(ModelRequest, model=built), directory, built.files)
            parts.append(_read_array(directory, (number, len(names), 2), np.float32))
        seen = np.concatenate(parts)
        for name, extremes in zip(names, seen.transpose(1, 0, 2), strict=True):
            if not np.isfinite(extremes).all():
                at = int(np.flatnonzero(~np.isfinite(extremes).all(axis=1))[0])
                raise InvalidInput(f"input {at} of the calibration set makes {name} NaN or infinite", tensor=name)
        found = [Statistics(name, *extremes.T) for name, extremes in zip(names, seen.transpose(1, 0, 2), strict=True)]
        if not histograms:
            return found
        counts = np.zeros((len(names), BINS), np.int64)
        request = partial(HistogramsRequest, model=built, bins=BINS, ranges=[(each.low, each.high) for each in found])
        for directory, _ in self._parts("histograms", data, built.signature):
            self._run(HISTOGRAMS, request, directory, built.files)
            counts += _read_array(directory, counts.shape, np.int64)
        return [Statistics(each.name, each.lows, each.highs, row) for each, row in zip(found, counts, strict=True)]

    def channels(self, built: ObservedModel, data: Data, positions: Sequence[int]) -> list[Array]:
        """Returns the smallest and the largest value of each channel, `[C, 2]` for each output of `built` whose index
        is in `positions`. Makes one pass over the data.

        Raises:
            InvalidInput: see `Data.inputs`. Also raised if a tensor has a value that is not finite.
        """
        sizes = [built.signature.outputs[position].shape[1] for position in positions]
        request, found = partial(ChannelsRequest, model=built, outputs=tuple(positions)), []
        for directory, _ in self._parts("channels", data, built.signature):
            self._run(CHANNELS, request, directory, built.files)
            found.append(_read_array(directory, (sum(sizes), 2), np.float32))
        whole = np.stack(
            [np.min([row[:, 0] for row in found], axis=0), np.max([row[:, 1] for row in found], axis=0)], 1
        )
        if not np.isfinite(whole).all():
            raise InvalidInput("the calibration set makes tensors NaN or infinite")
        return np.split(whole, np.cumsum(sizes)[:-1])

    def compare(self, first: ObservedModel, second: ObservedModel, data: Data) -> tuple[Array, list[Array]]:
        """Compares the outputs of the second model with the first outputs of the first model.

        Returns:
            For each output of the second model, the sum of squares of the first model's values, and the sum of squares
            of the differences, `[outputs, 2]`. Also each model's first output for each input, `[inputs, elements]`
            float32, memory-mapped from files in `scratch`.
        """
        sums, count = np.zeros((len(second.signature.outputs), 2)), 0
        size = math.prod(first.signature.outputs[0].shape)
        request = partial(CompareRequest, models=(first, second))
        paths = [self._directory() / "answers.bin" for _ in range(2)]
        for directory, number in self._parts("compare", data, first.signature):
            self._run(COMPARE, request, directory, [*first.files, *second.files])
            sums += _read_array(directory, sums.shape, np.float64)
            for index, path in enumerate(paths):
                with path.open("ab") as file:
                    file.write(_read_outputs(directory / OUTPUTS_FILE.format(index), 4 * number * size))
            count += number
        return sums, [np.memmap(path, np.float32, "r", shape=(count, size)) for path in paths]

    def switched(self, built: ObservedModel, data: Data, rows: Sequence[Sequence[int]]) -> tuple[Array, Array]:
        """Runs a model once with each row of parameters (`SwitchedRequest.rows`).

        Returns:
            For each row, the sum of squares of the first output with the first row, and the sum of squares of its
            differences from the output with this row, `[rows, 2]`. Also the index of the largest value of each
            output, `[inputs, rows]`.
        """
        sums, classes = np.zeros((len(rows), 2)), []
        request = partial(SwitchedRequest, model=built, rows=[tuple(row) for row in rows])
        for directory, number in self._parts("switched", data, built.signature):
            self._run(SWITCHED, request, directory, built.files)
            sums += _read_array(directory, sums.shape, np.float64)
            classes.append(_read_array(directory, (number, len(rows)), np.int64, CLASSES_FILE))
        return sums, np.concatenate(classes)

    def paired(self, first: ArtifactFiles, second: ArtifactFiles, seconds: float) -> tuple[float, float]:
        """Runs two models with the same inputs alternately, and measures each call. Returns their median times in
        seconds.
        """
        directory = self._directory()
        request = PairRequest((first, second), seconds, self.threads)
        self.machine.run(PAIR, request, directory, (*first.paths, *second.paths))
        times = _read_array(directory, (2,), np.float64)
        return float(times[0]), float(times[1])

    def discard(self, built: ArtifactFiles) -> None:
        """Deletes a built model."""
        self.machine.discard(built)

    def moments(self, built: ObservedModel, data: Data, groups: Sequence[Columns]) -> list[Moments]:
        """Returns the moments for each group. Makes one pass over `data` for each `_MOST_SUMMED_BYTES` of the
        sums.
        """
        found: list[Moments] = []
        for some in _batches(groups):
            shapes = [shape for each in some for shape in each.shapes]
            total = np.zeros(sum(math.prod(shape) for shape in shapes))
            request, count = partial(MomentsRequest, model=built, layers=some), 0
            for directory, number in self._parts("moments", data, built.signature):
                self._run(MOMENTS, request, directory, built.files)
                total += _read_array(directory, total.shape, np.float64)
                count += number
            if not np.isfinite(total).all():
                raise InvalidInput("the calibration set causes operands whose products are not finite")
            sums = iter(np.split(total, np.cumsum([math.prod(shape) for shape in shapes])[:-1]))
            for each in some:
                parts = [next(sums).reshape(shape) for shape in each.shapes]
                found.append(Moments(parts[0] / count, parts[1] if each.products else None))
        return found

    def _parts(self, what: str, data: Data, signature: ModelSignature) -> Iterator[tuple[Path, int]]:
        """Yields directories that contain a file of inputs for one child, and the number of these inputs, until all
        inputs were read.
        """
        done, total = 0, data.count(signature)
        inputs = data.inputs(signature)
        while True:
            directory = self._directory()
            with (directory / "inputs.bin").open("wb") as file:
                number = _write_inputs(file, inputs)
            if not number:
                return
            yield directory, number
            (directory / "inputs.bin").unlink()
            done += number
            self.tick(what, done, total)

    def _run(
        self, role: Role[Request, InputCount], request: Callable[..., Request], directory: Path, files: Iterable[Path]
    ) -> None:
        inputs = directory / "inputs.bin"
        self.machine.run(role, request(inputs=inputs, threads=self.threads), directory, (*files, inputs))

    def _directory(self) -> Path:
        self._count += 1
        directory = self.scratch.absolute() / f"part-{self._count}"
        directory.mkdir()
        return directory


def _batches(groups: Sequence[Columns]) -> Iterator[list[Columns]]:
    """Divides columns into groups such that one child can sum the moments of each group."""
    some: list[Columns] = []
    size = 0
    for each in groups:
        own = 8 * sum(math.prod(shape) for shape in each.shapes)
        if some and size + own > _MOST_SUMMED_BYTES:
            yield some
            some, size = [], 0
        some.append(each)
        size += own
    if some:
        yield some


def _write_inputs(file: BinaryIO, inputs: Iterator[list[Array]]) -> int:
    """Writes as many inputs as fit into one file. Returns their number."""
    number = 0
    for tensors in inputs:
        for tensor in tensors:
            file.write(np.ascontiguousarray(tensor).tobytes())
        number += 1
        if number >= _MOST_IN_PART or file.tell() >= _PART_BYTES:
            break
    return number


def _read_array(directory: Path, shape: Sequence[int], dtype: type, name: str = OBSERVED_FILE) -> Array:
    """Reads an array that a child wrote. Only its type and size are checked. The child ran the model's native code, so
    the values cannot be trusted more than the model.
    """
    path = directory / name
    if path.is_symlink() or not path.is_file():
        raise BuildFailed("the process that ran the model did not write its results")
    try:
        seen: Array = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise BuildFailed("the process that ran the model wrote unreadable results") from error
    if seen.shape != tuple(shape) or seen.dtype != dtype:
        raise BuildFailed(
            f"the process that ran the model wrote results of {seen.dtype} {list(seen.shape)}, not {list(shape)}"
        )
    return np.array(seen)


def _read_outputs(path: Path, size_bytes: int) -> bytes:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size_bytes:
        raise BuildFailed("the process that ran the models did not write their outputs")
    return path.read_bytes()
