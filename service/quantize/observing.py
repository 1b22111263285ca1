"""Runs compiled models on a calibration set, and keeps to the memory of a few inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from service.compiler.importers.onnx.model import Array
from service.compiler.observing_roles import CLASSES_FILE, OUTPUTS_FILE, SEEN_FILE
from service.compiler.sandbox import Access, run_child
from service.compiler.sandbox.policy import unlimited
from service.core.build import Progress
from service.core.errors import BuildFailed, InvalidInput
from service.core.settings import Settings
from service.core.signature import ModelSignature
from service.quantize.building import Built, build
from service.quantize.data import Data
from service.quantize.methods import BINS, Statistics

_PART_BYTES = 64 << 20  # of inputs in a file at once; and one input, at least
_MOST_IN_PART = 32
_MOST_ANSWER_BYTES = 1 << 30
Tick = Callable[[str, int], None]


class Machine(Protocol):
    """Builds and runs what a workshop asks for."""

    def build(self, source: Path, directory: Path) -> Built:
        """Builds an ONNX file for this machine, in a new directory. Raises as `building.build`."""

    def run(self, role: str, request: Mapping[str, Any], directory: Path, files: Iterable[Path]) -> None:
        """Does a role of `compiler.observing_roles`, which reads `files` and leaves others in `directory`."""


@dataclass(frozen=True)
class Children:
    """Sandboxed children for everything, of a process that has read only its own user's files.

    Attributes:
        shapes: of inputs that the file leaves open.
    """

    settings: Settings
    progress: Progress
    shapes: Mapping[str, Sequence[int]]

    def build(self, source: Path, directory: Path) -> Built:
        return build(source, directory, self.progress, self.settings, self.shapes)

    def run(self, role: str, request: Mapping[str, Any], directory: Path, files: Iterable[Path]) -> None:
        run_child(
            role,
            request,
            access=Access(readable=tuple(files), writable=(directory,)),
            limits=unlimited(_MOST_ANSWER_BYTES),
            allow_unsandboxed=self.settings.allow_unsandboxed,
        )


@dataclass
class Workshop:
    """A place to build and run models.

    Attributes:
        scratch: an empty directory; the caller removes it.
        threads: for running; 0: all cores.
        tick: told what is done, and of how many inputs.
    """

    scratch: Path
    machine: Machine
    threads: int = 0
    tick: Tick = lambda what, number: None
    _count: int = 0

    def build(self, model: bytes) -> Built:
        """Builds an ONNX file for this machine. Raises as `building.build`."""
        directory = self._directory()
        source = directory / "model.onnx"
        source.write_bytes(model)
        return self.machine.build(source, directory)

    def statistics(self, built: Built, data: Data, histograms: bool) -> list[Statistics]:
        """What is seen of each input and output of `built`, in one pass over `data`, or in two with histograms.

        Raises:
            InvalidInput: as `Data.inputs`; or a tensor has a value that is not finite.
        """
        names = [spec.name for spec in (*built.signature.inputs, *built.signature.outputs)]
        parts = []
        for directory, number in self._parts("extremes", data, built.signature):
            self._run("extremes", {"model": built.to_json()}, directory, built.files)
            parts.append(_seen(directory, (number, len(names), 2), np.float32))
        seen = np.concatenate(parts)
        for name, extremes in zip(names, seen.transpose(1, 0, 2), strict=True):
            if not np.isfinite(extremes).all():
                at = int(np.flatnonzero(~np.isfinite(extremes).all(axis=1))[0])
                raise InvalidInput(f"input {at} of the calibration set makes {name} NaN or infinite", tensor=name)
        found = [Statistics(name, *extremes.T) for name, extremes in zip(names, seen.transpose(1, 0, 2), strict=True)]
        if not histograms:
            return found
        counts = np.zeros((len(names), BINS), np.int64)
        asked = {"model": built.to_json(), "bins": BINS, "ranges": [[each.low, each.high] for each in found]}
        for directory, _ in self._parts("histograms", data, built.signature):
            self._run("histograms", asked, directory, built.files)
            counts += _seen(directory, counts.shape, np.int64)
        return [Statistics(each.name, each.lows, each.highs, row) for each, row in zip(found, counts, strict=True)]

    def compare(self, first: Built, second: Built, data: Data) -> tuple[Array, list[list[Array]]]:
        """Of each output of two models with the same ones, the squares of the first's and of their differences, summed:
        `[outputs, 2]`; and each model's first output for each input, flat float32."""
        sums = np.zeros((len(first.signature.outputs), 2))
        answers: list[list[Array]] = [[], []]
        size = int(np.prod(first.signature.outputs[0].shape))
        asked = {"models": [first.to_json(), second.to_json()]}
        for directory, number in self._parts("compare", data, first.signature):
            self._run("compare", asked, directory, [*first.files, *second.files])
            sums += _seen(directory, sums.shape, np.float64)
            for place, row in enumerate(answers):
                row += _answers(directory / OUTPUTS_FILE.format(place), number, size)
        return sums, answers

    def switched(self, built: Built, data: Data, rows: Sequence[Sequence[float]]) -> tuple[Array, Array]:
        """Of a model whose last input are switches, for each row of them: the squares of the first output with the
        first row, and of what it differs by, summed, `[rows, 2]`; and the most likely classes, `[inputs, rows]`."""
        sums, classes = np.zeros((len(rows), 2)), []
        own = replace(built.signature, inputs=built.signature.inputs[:-1])
        asked = {"model": built.to_json(), "switches": [list(map(float, row)) for row in rows]}
        for directory, number in self._parts("switched", data, own):
            self._run("switched", asked, directory, built.files)
            sums += _seen(directory, sums.shape, np.float64)
            classes.append(_seen(directory, (number, len(rows)), np.int64, CLASSES_FILE))
        return sums, np.concatenate(classes)

    def _parts(self, what: str, data: Data, signature: ModelSignature) -> Iterator[tuple[Path, int]]:
        """A directory with the file of inputs for one child, and how many there are, until no more are."""
        done = 0
        inputs = data.inputs(signature)
        while True:
            directory = self._directory()
            with (directory / "inputs.bin").open("wb") as file:
                number = _written(file, inputs)
            if not number:
                return
            yield directory, number
            (directory / "inputs.bin").unlink()
            done += number
            self.tick(what, done)

    def _run(self, role: str, request: Mapping[str, Any], directory: Path, files: Iterable[Path]) -> None:
        inputs = directory / "inputs.bin"
        asked = {**request, "inputs": str(inputs), "threads": self.threads}
        self.machine.run(role, asked, directory, (*files, inputs))

    def _directory(self) -> Path:
        self._count += 1
        directory = self.scratch.absolute() / f"part-{self._count}"
        directory.mkdir()
        return directory


def _written(file: BinaryIO, inputs: Iterator[list[Array]]) -> int:
    """Writes some inputs; how many."""
    number = 0
    for tensors in inputs:
        for tensor in tensors:
            file.write(np.ascontiguousarray(tensor).tobytes())
        number += 1
        if number >= _MOST_IN_PART or file.tell() >= _PART_BYTES:
            break
    return number


def _seen(directory: Path, shape: Sequence[int], dtype: type, name: str = SEEN_FILE) -> Array:
    """What a child left, which ran native code made of the model: its word for anything but the size is as good."""
    path = directory / name
    if path.is_symlink() or not path.is_file():
        raise BuildFailed("the process that ran the model did not say what it saw")
    try:
        seen: Array = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise BuildFailed("the process that ran the model did not say what it saw") from error
    if seen.shape != tuple(shape) or seen.dtype != dtype:
        raise BuildFailed(f"the process that ran the model saw {seen.dtype} {list(seen.shape)}, not {list(shape)}")
    return np.array(seen)


def _answers(path: Path, number: int, size: int) -> list[Array]:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != 4 * number * size:
        raise BuildFailed("the process that ran the models did not write their answers")
    return list(np.fromfile(path, np.float32).reshape(number, size))
