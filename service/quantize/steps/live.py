"""Widens the ranges of tensors so that they contain the values of live requests.

The counts of live values have the names of the served model's tensors: the importer numbers the operators of the
quantized file, whose tensors have the names of the float model's tensors with `_quantized`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.builds.quantization import LiveRange
from service.core.errors import InvalidInput
from service.quantize.calibration.methods import affine

_SERVED = re.compile(r"[A-Za-z0-9]+_\d+_(.+)_quantized\d*")  # operator, its number, tensor


def widened(
    types: Mapping[str, QuantizedType], live: Sequence[LiveRange], tensors: Collection[str]
) -> dict[str, QuantizedType]:
    """Returns `types`, with ranges that contain those of `live`.

    Args:
        types: the types of the tensors that are stored in 8 bits.
        tensors: the names of all observed tensors. Ranges of those that have no type are ignored.

    Raises:
        InvalidInput: a live range belongs to no tensor of the model.
    """
    found, names = dict(types), {_plain(name): name for name in tensors}
    for each in live:
        matched = _SERVED.fullmatch(each.tensor)
        name = None if matched is None else names.get(_plain(matched[1]))
        if name is None:
            raise InvalidInput(
                f"the model has no quantized tensor that is served as {each.tensor!r}",
                hint="give the float model from which octet quantize wrote the served version",
            )
        if name in found:
            found[name] = _containing(found[name], each)
    return found


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _containing(kind: QuantizedType, live: LiveRange) -> QuantizedType:
    """Returns the type whose range contains those of `kind` and `live`."""
    scale, point = kind.scales[0], kind.zero_points[0]
    least, most = STORAGE_RANGES[kind.storage]
    low, high = (least - point) * scale, (most - point) * scale
    if low <= live.low and live.high <= high:
        return kind
    return affine(min(low, live.low), max(high, live.high), kind.storage)
