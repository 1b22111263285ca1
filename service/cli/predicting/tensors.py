"""Tensors in .npy and .npz files, as inputs of predictions."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from service.cli.predicting.inputs import Item
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.signature import TensorSpec

_MAGIC = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # of .npy, of .npz, and of an empty .npz
_SUFFIXES = (".npy", ".npz")


def split_samples(item: Item, specs: Sequence[TensorSpec]) -> Iterator[Item]:
    """Yields the samples of an item: one for each index of the first axis, if a .npy or .npz file contains more samples
    than the model takes at a time. Any other item is yielded as it is. A file that is damaged, or whose arrays are not
    the model's inputs, becomes an item with a `problem`.
    """
    try:
        yield from _split(item, specs)
    except InvalidInput as error:
        yield Item(item.name, problem=error)


def _split(item: Item, specs: Sequence[TensorSpec]) -> Iterator[Item]:
    data = item.data
    if item.file is not None and item.file.suffix.lower() in _SUFFIXES:
        data = item.file.read_bytes()
    if data is None or not data.startswith(_MAGIC):
        yield item
        return
    arrays = _by_input(_load(data, item.name), specs, item.name)
    samples = _count(arrays, specs)
    if samples is None:
        fitting = {spec.name: _with_batch(arrays[spec.name], spec) for spec in specs}
        yield replace(item, file=None, data=None, arrays=fitting)
        return
    for index in range(samples):
        sample = {name: array[index : index + 1] for name, array in arrays.items()}
        yield Item(f"{item.name}[{index}]", arrays=sample)


def _load(data: bytes, name: str) -> dict[str, Array]:
    """Returns the arrays of an .npz file by name, or the array of a .npy file under the name ""."""
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return {"": loaded} if isinstance(loaded, np.ndarray) else {each: loaded[each] for each in loaded.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{name}: {error}", hint="write it with numpy.save or numpy.savez") from error


def _by_input(arrays: Mapping[str, Array], specs: Sequence[TensorSpec], name: str) -> dict[str, Array]:
    """Returns the arrays by the names of the inputs. The only array of a model with one input may have any name."""
    names = [spec.name for spec in specs]
    if len(arrays) == len(names) == 1:
        return {names[0]: next(iter(arrays.values()))}
    if arrays.keys() != set(names):
        found = ", ".join(each or "one array without a name" for each in arrays) or "no arrays"
        hint = f"numpy.savez({name!r}, {', '.join(f'{each}=...' for each in names)})"
        raise InvalidInput(f"{name} contains {found}, but the inputs are {', '.join(names)}", hint=hint)
    return dict(arrays)


def _count(arrays: Mapping[str, Array], specs: Sequence[TensorSpec]) -> int | None:
    """Returns the number of samples in arrays `[samples, ...]` for inputs of one sample `[1, ...]`; None for other
    arrays.
    """
    counts = {len(arrays[spec.name]) if _is_stacked(arrays[spec.name], spec) else None for spec in specs}
    return counts.pop() if len(counts) == 1 else None


def _is_stacked(array: Array, spec: TensorSpec) -> bool:
    is_single = spec.shape[:1] == (1,) and array.ndim == len(spec.shape) and len(array) != 1
    return is_single and _fits(array.shape[1:], spec.shape[1:])


def _with_batch(array: Array, spec: TensorSpec) -> Array:
    """Returns a sample without a batch axis with one."""
    lacks_batch = spec.shape[:1] in ((1,), (-1,)) and array.ndim == len(spec.shape) - 1
    return array[np.newaxis] if lacks_batch and _fits(array.shape, spec.shape[1:]) else array


def _fits(shape: Sequence[int], expected: Sequence[int]) -> bool:
    return len(shape) == len(expected) and all(want in (-1, have) for have, want in zip(shape, expected, strict=True))
