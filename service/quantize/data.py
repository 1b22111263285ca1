"""Calibration sets: a folder of pictures, or arrays in an .npz or .npy file. Read one input at a time, and not trusted:
what a file says of its sizes is checked, and never allocated."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from service.compiler.importers.onnx.model import Array
from service.core.errors import InvalidInput, InvalidTensor
from service.core.metadata import NOTHING, ModelMetadata
from service.core.signature import ModelSignature, TensorSpec
from service.runtime.image import decode

_PICTURES = (".jpg", ".jpeg", ".png")
_LARGEST_PICTURE_BYTES = 64 << 20
_ARRAYS = (
    "give an .npz with an array [count, …] for each of the model's inputs, under its name, or a folder of pictures"
)


@dataclass(frozen=True)
class Data:
    """A set of inputs.

    Attributes:
        path: a folder, an .npz or an .npy file.
        metadata: what pictures are made tensors by.
        most: as many inputs are read.
    """

    path: Path
    metadata: ModelMetadata = NOTHING
    most: int = 256

    def inputs(self, signature: ModelSignature) -> Iterator[list[Array]]:
        """Each input: the model's tensors, as its signature describes them for a batch of 1.

        Raises:
            InvalidInput, InvalidTensor: a file is damaged, holds Python objects, or does not fit the model.
        """
        count = 0
        for tensors in self._pictures(signature) if self.path.is_dir() else self._arrays(signature):
            for spec, tensor in zip(signature.inputs, tensors, strict=True):
                if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
                    raise InvalidInput(
                        f"{self.path}: input {count} of the calibration set has NaN or infinity in {spec.name!r}",
                        tensor=spec.name,
                        hint="leave it out",
                    )
            yield tensors
            count += 1
            if count >= self.most:
                return
        if not count:
            raise InvalidInput(f"{self.path} has no inputs", hint=_ARRAYS)

    def files(self) -> list[Path]:
        """The pictures of a folder, and of its folders, in order of their names."""
        return sorted(path for path in self.path.rglob("*") if path.suffix.lower() in _PICTURES and path.is_file())

    def _pictures(self, signature: ModelSignature) -> Iterator[list[Array]]:
        if len(signature.inputs) != 1:
            raise InvalidInput(f"the model has {len(signature.inputs)} inputs, and takes no folder", hint=_ARRAYS)
        for path in self.files():
            if path.stat().st_size > _LARGEST_PICTURE_BYTES:
                raise InvalidInput(f"{path} is larger than {_LARGEST_PICTURE_BYTES >> 20} MiB")
            try:
                yield [decode(path.read_bytes(), signature.inputs[0], self.metadata)]
            except InvalidInput as error:
                raise InvalidInput(f"{path}: {error.message}", hint=error.hint) from error

    def _arrays(self, signature: ModelSignature) -> Iterator[list[Array]]:
        with ExitStack() as stack:
            rows = [_rows(self.path, spec, stack, len(signature.inputs) == 1) for spec in signature.inputs]
            lengths = {length for length, _ in rows}
            if len(lengths) > 1:
                raise InvalidInput(f"{self.path}: its arrays are of different lengths: {sorted(lengths)}")
            for _ in range(lengths.pop()):
                yield [next(values) for _, values in rows]


def labels_of(path: Path, data: Data) -> list[int | None]:
    """The class of each input of `data`, in its order, from lines of `file,class` for pictures, and of `class` for
    arrays; None of a picture that has no line. A first line may name the columns.

    Raises:
        InvalidInput: a line is none of these, or names a picture that is not there.
    """
    try:
        lines = [line for line in csv.reader(path.read_text(encoding="utf-8").splitlines()) if any(line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is not a CSV file: {error}") from error
    if lines and not lines[0][-1].strip().isdecimal():
        lines = lines[1:]
    for number, line in enumerate(lines, 1):
        if len(line) not in (1, 2) or not line[-1].strip().isdecimal() or len(line[-1]) > 9:
            raise InvalidInput(f"{path}: label {number} is {','.join(line)[:80]!r}", hint="write file,class or class")
    if not data.path.is_dir():
        return [int(line[-1]) for line in lines[: data.most]]
    if any(len(line) != 2 for line in lines):
        raise InvalidInput(f"{path}: pictures are labelled by name", hint="write lines of file,class")
    files = data.files()
    places = {str(file.relative_to(data.path)): place for place, file in enumerate(files)}
    found: list[int | None] = [None] * len(files)
    for name, number_text in lines:
        if name not in places:
            raise InvalidInput(f"{path}: {name[:80]!r} is no picture of {data.path}")
        found[places[name]] = int(number_text)
    return found[: data.most]


def _rows(path: Path, spec: TensorSpec, stack: ExitStack, only: bool) -> tuple[int, Iterator[Array]]:
    """How many values for an input a file has, and each of them."""
    try:
        file = _opened(path, spec, stack, only)
        length, dtype = _header(file, path, spec)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise InvalidInput(f"{path}: {error}", hint="write it with numpy.savez or numpy.save") from error
    return length, _read(file, length, dtype, path, spec)


def _opened(path: Path, spec: TensorSpec, stack: ExitStack, only: bool) -> IO[bytes]:
    file = stack.enter_context(path.open("rb"))
    if file.read(6) == b"\x93NUMPY":
        file.seek(0)
        if not only:
            raise InvalidInput(f"{path} has one array, and the model more inputs", hint=_ARRAYS)
        return file
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = [name for name in archive.namelist() if name.endswith(".npy")]
    name = f"{spec.name}.npy"
    if name not in members:
        if not only or len(members) != 1:
            held = ", ".join(sorted(each.removesuffix(".npy") for each in members)[:8])
            raise InvalidInput(f"{path} has no array {spec.name!r}; it has: {held}", tensor=spec.name, hint=_ARRAYS)
        name = members[0]
    return stack.enter_context(archive.open(name))


def _header(file: IO[bytes], path: Path, spec: TensorSpec) -> tuple[int, np.dtype[Any]]:
    """The number of values and their dtype."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"arrays of format {version} are not read")
    shape, by_column, dtype = read(file)
    if dtype.hasobject or dtype.kind not in "fiub":
        raise InvalidInput(f"{path}: {spec.name!r} is of {dtype}", tensor=spec.name, hint="write numbers")
    if (dtype.kind == "f") != (spec.dtype.kind == "f"):
        raise InvalidTensor(f"{path}: {spec.name!r} is of {dtype}; the model takes {spec.dtype}", tensor=spec.name)
    own = tuple(spec.shape)
    if by_column or own[:1] != (1,) or tuple(shape[1:]) != own[1:]:
        said = f"{list(shape)}{' by columns' if by_column else ''}"
        raise InvalidTensor(
            f"{path}: {spec.name!r} is {said}; the model takes {list(own)}",
            tensor=spec.name,
            hint=f"write an array of [count, {', '.join(map(str, own[1:]))}]",
        )
    return int(shape[0]), dtype


def _read(file: IO[bytes], length: int, dtype: np.dtype[Any], path: Path, spec: TensorSpec) -> Iterator[Array]:
    size = int(np.prod(spec.shape)) * dtype.itemsize
    for number in range(length):
        try:
            raw = file.read(size)
        except (OSError, EOFError, zipfile.BadZipFile, ValueError) as error:
            raise InvalidInput(f"{path}: {error}", tensor=spec.name) from error
        if len(raw) != size:
            raise InvalidInput(f"{path}: {spec.name!r} ends within input {number} of {length}", tensor=spec.name)
        values = np.frombuffer(raw, dtype).reshape(spec.shape)
        with np.errstate(over="ignore"):
            yield values.astype(spec.dtype)


def classes_of(outputs: Sequence[Array]) -> list[int]:
    """The most likely class of each of a classifier's outputs."""
    return [int(output.reshape(-1).argmax()) for output in outputs]


def accuracy(classes: Sequence[int], labels: Sequence[int | None]) -> Mapping[str, float | int]:
    """The share of right classes among the inputs with a label, with its standard error (of a binomial's share)."""
    right = [found == label for found, label in zip(classes, labels, strict=False) if label is not None]
    share = sum(right) / len(right) if right else 0.0
    error = (share * (1 - share) / len(right)) ** 0.5 if right else 0.0
    return {"right": sum(right), "inputs": len(right), "share": share, "standard_error": error}
