"""Calibration sets: pictures in a folder or a zip archive, or arrays in an .npz or .npy file.

Calibration sets are read one input at a time. They are untrusted: sizes in a file's headers are checked before memory
is allocated, and nothing is unpacked to disk.
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from service.compiler.importers.archive import Archive
from service.core.errors import InvalidInput, InvalidTensor, MalformedModel, OctetError
from service.core.models.arrays import Array
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import ModelSignature, TensorSpec
from service.runtime.image import decode

_PICTURES = (".jpg", ".jpeg", ".png")
_LARGEST_PICTURE_BYTES = 64 << 20
_LARGEST_LABELS_BYTES = 16 << 20
_LARGEST_HEADER_BYTES = 1 << 16  # limit of the header of an .npy array; NumPy writes 128 bytes
_LABELS = "labels.csv"  # the name of the file with labels in an archive
_DAMAGED = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError)
# no limit, because arrays are streamed while they are unpacked, and pictures are limited one by one
_ANY_BYTES = 1 << 62
_ARRAYS = (
    "use an .npz file with an array [count, …] for each of the model's inputs, under its name, or a folder of pictures"
)


@dataclass(frozen=True)
class Data:
    """A calibration set.

    Attributes:
        path: a folder, an archive of pictures or of arrays (.npz), or an .npy file.
        metadata: describes how pictures become tensors.
        most: the largest number of inputs that are read.
    """

    path: Path
    metadata: ModelMetadata = NOTHING
    most: int = 256

    def inputs(self, signature: ModelSignature) -> Iterator[list[Array]]:
        """Yields each input: a list of the model's tensors, as its signature describes them for a batch of 1.

        Raises:
            InvalidInput, InvalidTensor: a file is damaged, contains Python objects, or does not fit the model.
        """
        count = 0
        for tensors in self._pictures(signature) if self.has_pictures else self._arrays(signature):
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

    @property
    def has_pictures(self) -> bool:
        return self._archive is not None or self.path.is_dir()

    def pictures(self) -> list[str]:
        """Returns the names of the pictures in a folder or archive and its subfolders, sorted. Hidden files are
        skipped.
        """
        if self._archive is not None:
            found = [PurePosixPath(name) for name in self._archive]
        else:
            found = [PurePosixPath(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()]
        shown = (path for path in found if not any(part.startswith((".", "__MACOSX")) for part in path.parts))
        return [str(path) for path in sorted(shown) if path.suffix.lower() in _PICTURES]

    def labels(self) -> list[int | None]:
        """Returns the labels in the archive's `labels.csv` in the same form as `labels_of`. The list is empty if the
        archive has no such file.
        """
        if not _is_zip(self.path):
            return []
        with _reading(self.path), zipfile.ZipFile(self.path) as archive:
            if _LABELS not in archive.namelist():
                return []
            with archive.open(_LABELS) as file:
                content = file.read(_LARGEST_LABELS_BYTES + 1)
        if len(content) > _LARGEST_LABELS_BYTES:
            raise InvalidInput(f"{self.path}: {_LABELS} is larger than {_LARGEST_LABELS_BYTES >> 20} MiB")
        return [_class_of(text) for text in _texts(content, _LABELS, self)]

    def length(self) -> int:
        """Returns the number of inputs, for callers that do not have the model's signature yet: the number of pictures,
        or of the first array's rows.

        Raises:
            InvalidInput: a file is damaged.
        """
        if self.has_pictures:
            return min(self.most, len(self.pictures()))
        with _reading(self.path), ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(self.path.open("rb"))
            if _is_zip(self.path):
                archive = stack.enter_context(zipfile.ZipFile(file))
                first = next(name for name in archive.namelist() if name.endswith(".npy"))
                file = stack.enter_context(archive.open(first))
            (rows, *_), _, _ = _array_header(file)
            return min(self.most, rows)

    def check_labels(self, labels: Sequence[int | None], source: str) -> None:
        """Checks that labels are those of these inputs.

        Args:
            source: the name of the file with the labels.

        Raises:
            InvalidInput: there are more or fewer labels than arrays, or no picture has a label.
        """
        if self.has_pictures:
            if all(label is None for label in labels):
                raise InvalidInput(f"{source} labels no picture in {self.path}", hint="write lines of file,class")
        elif len(labels) != (inputs := self.length()):
            raise InvalidInput(
                f"{source} has {len(labels)} labels, but {self.path} has {inputs} inputs",
                hint="write one class on each line, in the order of the inputs",
            )

    def count(self, signature: ModelSignature) -> int:
        """Returns the number of inputs that `inputs` yields. Raises the same errors as `inputs`."""
        if self.has_pictures:
            return min(self.most, len(self.pictures()))
        with ExitStack() as stack:
            rows = [_rows(self.path, spec, stack, len(signature.inputs) == 1) for spec in signature.inputs]
            return min(self.most, *(length for length, _ in rows))

    @cached_property
    def _archive(self) -> Archive | None:
        """The archive of pictures, or None if the set has another form."""
        if not _is_zip(self.path):
            return None
        with _reading(self.path), zipfile.ZipFile(self.path) as archive:
            if any(name.endswith(".npy") for name in archive.namelist()):
                return None
        return _archive(self.path)

    def _pictures(self, signature: ModelSignature) -> Iterator[list[Array]]:
        if len(signature.inputs) != 1:
            raise InvalidInput(
                f"the model has {len(signature.inputs)} inputs, so pictures cannot be used", hint=_ARRAYS
            )
        for name in self.pictures():
            try:
                yield [decode(self.picture(name), signature.inputs[0], self.metadata)]
            except OctetError as error:
                raise InvalidInput(f"{self.path}: {name}: {error.message}", hint=error.hint) from error

    def picture(self, name: str) -> bytes:
        """Returns the file of the picture `name`, one of `pictures`. Raises `InvalidInput` if it is too large or
        damaged.
        """
        archive = self._archive
        size = (self.path / name).stat().st_size if archive is None else archive.size_of(name)
        if size > _LARGEST_PICTURE_BYTES:
            raise InvalidInput(f"it is larger than {_LARGEST_PICTURE_BYTES >> 20} MiB")
        return (self.path / name).read_bytes() if archive is None else _bytes_of(archive, name, self.path)

    def _arrays(self, signature: ModelSignature) -> Iterator[list[Array]]:
        with ExitStack() as stack:
            rows = [_rows(self.path, spec, stack, len(signature.inputs) == 1) for spec in signature.inputs]
            lengths = {length for length, _ in rows}
            if len(lengths) > 1:
                raise InvalidInput(f"{self.path}: its arrays have different lengths: {sorted(lengths)}")
            for _ in range(lengths.pop()):
                yield [next(values) for _, values in rows]


def labels_of(path: Path, data: Data) -> list[int | None]:
    """Returns the class of each input of `data`, in order. For pictures, the lines of the file are `file,class`; for
    arrays, they are `class`. The class is None for a picture that is not listed. The first line may contain names of
    columns.

    Raises:
        InvalidInput: a line has another form, or contains the name of a picture that does not exist.
    """
    return [_class_of(text) for text in _texts(path.read_bytes(), str(path), data)]


def texts_of(path: Path, data: Data) -> list[str | None]:
    """Does the same as `labels_of`, for labels that may be any text. The first line is never taken for names of
    columns.
    """
    return _texts(path.read_bytes(), str(path), data, are_classes=False)


def _class_of(text: str | None) -> int | None:
    return None if text is None else int(text)


def _texts(content: bytes, shown: str, data: Data, *, are_classes: bool = True) -> list[str | None]:
    try:
        lines = [line for line in csv.reader(content.decode().splitlines()) if any(line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{shown} is not a CSV file: {error}") from error
    if are_classes and lines and not lines[0][-1].strip().isdecimal():
        lines = lines[1:]
    for number, line in enumerate(lines, 1):
        is_class = line[-1].strip().isdecimal() and len(line[-1]) <= 9
        if len(line) not in (1, 2) or (are_classes and not is_class):
            raise InvalidInput(f"{shown}: label {number} is {','.join(line)[:80]!r}", hint="write file,class or class")
    if not data.has_pictures:
        return [line[-1] for line in lines[: data.most]]
    if any(len(line) != 2 for line in lines):
        raise InvalidInput(f"{shown}: pictures are labelled by name", hint="write lines of file,class")
    positions = {name: index for index, name in enumerate(data.pictures())}
    found: list[str | None] = [None] * len(positions)
    for name, text in lines:
        if name not in positions:
            raise InvalidInput(f"{shown}: {name[:80]!r} is not a picture in {data.path}")
        found[positions[name]] = text
    return found[: data.most]


def _is_zip(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _archive(path: Path) -> Archive:
    """Opens an archive. Raises `InvalidInput` if it is damaged or has unsafe names, links or encrypted members."""
    try:
        return Archive(path, with_folders=True, largest_deflated_bytes=_ANY_BYTES, most_deflated_bytes=_ANY_BYTES)
    except MalformedModel as error:
        raise InvalidInput(f"{path}: {error.message}", hint="write it with zip or numpy.savez") from error


def _bytes_of(archive: Archive, name: str, path: Path) -> bytes:
    try:
        return archive.read(name)
    except MalformedModel as error:
        raise InvalidInput(f"{path}: {error.message}", hint="write it again") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Converts the errors that libraries raise for a damaged file to `InvalidInput`."""
    try:
        yield
    except _DAMAGED as error:
        raise InvalidInput(f"{path}: {error}", hint="write it with zip, numpy.savez or numpy.save") from error


def _rows(path: Path, spec: TensorSpec, stack: ExitStack, only: bool) -> tuple[int, Iterator[Array]]:
    """Returns the number of values that a file contains for an input, and an iterator over them."""
    with _reading(path):
        file = _open_array(path, spec, stack, only)
        length, dtype = _read_header(file, path, spec)
    return length, _read(file, length, dtype, path, spec)


def _open_array(path: Path, spec: TensorSpec, stack: ExitStack, only: bool) -> IO[bytes]:
    file = stack.enter_context(path.open("rb"))
    if file.read(6) == b"\x93NUMPY":
        file.seek(0)
        if not only:
            raise InvalidInput(f"{path} has one array, but the model has several inputs", hint=_ARRAYS)
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


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Returns an array's shape, whether it is in column-major order, and its dtype. Raises `ValueError` if damaged."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"arrays of format {version} are not supported")
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(_Beginning(file))
    return header


def _read_header(file: IO[bytes], path: Path, spec: TensorSpec) -> tuple[int, np.dtype[Any]]:
    """Reads an array's header. Returns the number of values and their dtype."""
    shape, by_column, dtype = _array_header(file)
    if dtype.hasobject or dtype.kind not in "fiub":
        raise InvalidInput(f"{path}: {spec.name!r} has dtype {dtype}", tensor=spec.name, hint="write numbers")
    if (dtype.kind == "f") != (spec.dtype.kind == "f"):
        raise InvalidTensor(f"{path}: {spec.name!r} has dtype {dtype}; the model takes {spec.dtype}", tensor=spec.name)
    own = tuple(spec.shape)
    of_each = own[1:] if own[:1] == (1,) else own  # `count` replaces an axis of samples; a state may not have that axis
    if by_column or not shape or tuple(shape[1:]) not in (of_each, own):
        described = f"{list(shape)}{' in column-major order' if by_column else ''}"
        raise InvalidTensor(
            f"{path}: {spec.name!r} is {described}; the model takes {list(own)}",
            tensor=spec.name,
            hint=f"write an array of [{', '.join(map(str, ('count', *of_each)))}]",
        )
    return int(shape[0]), dtype


class _Beginning(io.RawIOBase):
    """A file of which at most `_LARGEST_HEADER_BYTES` are read, even if its header claims to be longer."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left_bytes = file, _LARGEST_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, self._left_bytes) if size >= 0 else self._left_bytes)
        self._left_bytes -= len(data)
        return data


def _read(file: IO[bytes], length: int, dtype: np.dtype[Any], path: Path, spec: TensorSpec) -> Iterator[Array]:
    size = int(np.prod(spec.shape)) * dtype.itemsize
    for number in range(length):
        with _reading(path):
            raw = file.read(size)
        if len(raw) != size:
            raise InvalidInput(f"{path}: {spec.name!r} ends within input {number} of {length}", tensor=spec.name)
        values = np.frombuffer(raw, dtype).reshape(spec.shape)
        with np.errstate(over="ignore"):
            yield values.astype(spec.dtype)
