"""Random models of poolings of real and stored values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.onnx_random.draws import BYTES, Draw, Drawn

_DILATED_SINCE = {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}
_ROUNDED_UP_SINCE = {"AveragePool": 10, "LpPool": 18, "MaxPool": 10}


def pool(of: Draw) -> Drawn:
    op_type, rank, opset = (
        of.one(["MaxPool", "MaxPool", "AveragePool", "LpPool"]),
        of.size(1, 3),
        of.one([11, 12, 18, 22]),
    )
    sizes, kernel = of.sizes(rank, 4, 9), of.sizes(rank, 1, 4)
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if of.often(0.7):
        attributes["strides"] = of.sizes(rank, 1, 3)
    if of.often(0.4) and opset >= _DILATED_SINCE[op_type]:
        attributes["dilations"] = of.sizes(rank, 1, 2)
    scheme = of.one(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "none"])
    if scheme == "pads":
        attributes["pads"] = [of.size(0, size - 1) for size in (*kernel, *kernel)]
    elif scheme != "none":
        attributes["auto_pad"] = scheme
    if of.often(0.3) and opset >= _ROUNDED_UP_SINCE[op_type]:
        attributes["ceil_mode"] = 1
    shape = [of.size(1, 2), of.one([1, 3, 8, 16]), *sizes]
    if op_type == "MaxPool":
        return _maximum(of, shape, attributes, opset)
    if op_type == "LpPool":
        attributes["p"] = of.size(1, 3)
    elif of.often():
        attributes["count_include_pad"] = 1
    return Drawn(op_type, [of.real(*shape)], ["float32"], attributes, tolerance=1e-6, opset=opset)


def _maximum(of: Draw, shape: list[int], attributes: dict[str, Any], opset: int) -> Drawn:
    if opset >= 12 and of.often(0.3):
        dtype = of.one(BYTES)
        return Drawn("MaxPool", [of.stored(dtype, *shape)], [dtype], attributes, opset=opset)
    x = np.round(of.real(*shape))  # several elements are equal
    if of.often(0.4):
        return Drawn("MaxPool", [x], ["float32"], attributes, opset=opset)
    if of.often(0.3):
        attributes["storage_order"] = 1
    return Drawn("MaxPool", [x], ["float32", "int64"], attributes, opset=opset)


def global_lp_pool(of: Draw) -> Drawn:
    x = of.real(*of.sizes(2, 1, 4), *of.sizes(of.size(1, 3), 1, 9))
    return Drawn("GlobalLpPool", [x], ["float32"], {"p": of.size(1, 3)}, tolerance=1e-6)


WINDOWS = {"GlobalLpPool": global_lp_pool, "Pool": pool}
