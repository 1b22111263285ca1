"""Writes arrays of a Python program to a file that `calibration.data.Data` reads."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.arrays import Array

_ONLY = "input"  # the array's name in the file, if the program gives no names; a single array may have any name


def write_inputs(inputs: Iterable[Array | Mapping[str, Array]], path: Path, most: int) -> None:
    """Writes the first `most` inputs to an .npz file. It holds one of them in memory at a time.

    Args:
        inputs: one item for each input of the model: an array, or a mapping from the names of the model's inputs to
            arrays. All arrays of one name have the same shape and dtype. The shape is that of the model's input for a
            batch of 1, with or without the axis of samples. Whatever `numpy.asarray` accepts is an array.
        path: the file to write; files beside it with its name and a number are used meanwhile.

    Raises:
        InvalidInput: `inputs` is empty, or an input differs from the first one in its names, shapes or dtypes.
    """
    with ExitStack() as stack:
        files: dict[str, _ArrayFile] = {}
        for number, given in enumerate(islice(inputs, most)):
            tensors = _tensors_of(given, number)
            if number == 0:
                for name, first in tensors.items():
                    files[name] = _ArrayFile(name, first, path.with_name(f"{path.name}.{len(files)}"), stack)
            if tensors.keys() != files.keys():
                raise InvalidInput(
                    f"input {number} of the calibration set has the arrays {_join_names(tensors)}, but the first one "
                    f"has {_join_names(files)}"
                )
            for name, tensor in tensors.items():
                files[name].append(tensor, number)
        if not files:
            raise InvalidInput("the calibration set has no inputs", hint="pass at least one array")
        with zipfile.ZipFile(path, "w") as archive:
            for name, file in files.items():
                file.copy_to(archive, f"{name}.npy")


class _ArrayFile:
    """An .npy file to which rows are appended. NumPy reserves room in its header for a larger number of rows."""

    def __init__(self, name: str, first: Array, path: Path, stack: ExitStack) -> None:
        if first.dtype.kind not in "fiub":
            raise InvalidInput(
                f"the calibration set has dtype {first.dtype} in {name!r}", tensor=name, hint="pass arrays of numbers"
            )
        self._name, self._shape, self._dtype, self._count = name, first.shape, first.dtype, 0
        self._file = stack.enter_context(path.open("w+b"))
        stack.callback(path.unlink)
        self._write_header()

    def append(self, row: Array, number: int) -> None:
        if (row.shape, row.dtype) != (self._shape, self._dtype):
            raise InvalidInput(
                f"input {number} of the calibration set is {row.dtype}{list(row.shape)} in {self._name!r}, but the "
                f"first one is {self._dtype}{list(self._shape)}",
                tensor=self._name,
                hint="pass one sample at a time, all with the same shape and dtype",
            )
        self._file.write(row.tobytes())
        self._count += 1

    def copy_to(self, archive: zipfile.ZipFile, member: str) -> None:
        self._write_header()
        self._file.seek(0)
        with archive.open(member, "w", force_zip64=True) as target:
            shutil.copyfileobj(self._file, target)

    def _write_header(self) -> None:
        header: dict[str, Any] = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._count, *self._shape),
        }
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, header)


def _tensors_of(given: Array | Mapping[str, Array], number: int) -> dict[str, Array]:
    if isinstance(given, str | tuple | list):
        raise InvalidInput(
            f"input {number} of the calibration set is a {type(given).__name__}",
            hint="pass an iterable with an array, or a mapping from names of inputs to arrays, for each sample",
        )
    named = given if isinstance(given, Mapping) else {_ONLY: given}
    return {name: np.asarray(value) for name, value in named.items()}


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(repr, names)))
