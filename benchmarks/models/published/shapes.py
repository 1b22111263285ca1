"""Chooses shapes for inputs whose shapes a file leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_IMAGE_SIZE = 224
_CHANNELS = (1, 3)
_LENGTH = 16


def open_shapes(inputs: Sequence[Mapping[str, Any]]) -> str:
    """Returns shapes in the form of `--input-shape` for all inputs with an open dimension.

    Args:
        inputs: the inputs in the outline that `octet inspect --json` prints.
    """
    return ";".join(
        f"{each['name']}={','.join(map(str, _closed(each['shape'])))}" for each in inputs if _is_open(each["shape"])
    )


def _is_open(shape: Sequence[Any]) -> bool:
    return not all(isinstance(size, int) and size > 0 for size in shape)


def _closed(shape: Sequence[Any]) -> list[int]:
    """Returns a shape of one sample. A picture gets a common size, any other open dimension a short length."""
    is_picture = len(shape) == 4 and any(shape[axis] in _CHANNELS for axis in (1, 3))
    size = _IMAGE_SIZE if is_picture else _LENGTH
    known = [each if isinstance(each, int) and each > 0 else size for each in shape]
    return [known[0] if isinstance(shape[0], int) and shape[0] > 0 else 1, *known[1:]]
