"""Chooses shapes for inputs whose shapes a file leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_IMAGE_SIZE = 224
_CHANNELS = (1, 3)
_LENGTH = 16


def open_shapes(inputs: Sequence[Mapping[str, Any]]) -> str:
    """Returns shapes in the form of `--input-shape` for all inputs with an open dimension.

    Dimensions of one name get one size: that of a picture if a picture has the dimension.

    Args:
        inputs: the inputs in the outline that `octet inspect --json` prints.
    """
    sizes: dict[str, int] = {}
    for each in sorted(inputs, key=lambda each: not _is_picture(each["shape"])):
        for axis, size in enumerate(each["shape"]):
            if isinstance(size, str):
                sizes.setdefault(size, 1 if axis == 0 else _size(each["shape"]))
    return ";".join(
        f"{each['name']}={','.join(map(str, _closed(each['shape'], sizes)))}"
        for each in inputs
        if not all(map(_is_fixed, each["shape"]))
    )


def _is_fixed(size: Any) -> bool:
    return isinstance(size, int) and size > 0


def _is_picture(shape: Sequence[Any]) -> bool:
    return len(shape) == 4 and any(shape[axis] in _CHANNELS for axis in (1, 3))


def _size(shape: Sequence[Any]) -> int:
    return _IMAGE_SIZE if _is_picture(shape) else _LENGTH


def _closed(shape: Sequence[Any], sizes: Mapping[str, int]) -> list[int]:
    """Returns a shape of one sample. A picture gets a common size, any other open dimension a short length."""
    open_size = [1, *[_size(shape)] * len(shape)]
    return [
        size if _is_fixed(size) else sizes[size] if size in sizes else open_size[axis]
        for axis, size in enumerate(shape)
    ]
