"""Random models of poolings of real and stored values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.onnx_random.draws import BYTES, Draw, Drawn, strip
from tests.support.onnx_operator import Constant

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


def conv(of: Draw) -> Drawn:
    """Draws Conv or ConvTranspose."""
    rank, groups, is_transposed = of.size(1, 3), of.one([1, 1, 2, 3]), of.often(0.6)
    sizes, kernel, per_group = of.sizes(rank, 3, 6), of.sizes(rank, 1, 3), of.size(1, 3)
    channels, filters = groups * of.size(1, 2), groups * per_group
    strides = of.sizes(rank, 1, 3)
    attributes: dict[str, Any] = {"strides": strides, "group": groups}
    if of.often(0.3):
        attributes["dilations"] = of.sizes(rank, 1, 2)
    scheme = of.one(["pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if scheme.startswith("SAME"):
        attributes.pop("dilations", None)
    if scheme == "pads":
        attributes["pads"] = of.sizes(2 * rank, 0, 2)
    elif scheme != "none":
        attributes["auto_pad"] = scheme
    bias = of.operand(of.real(filters), 0.7) if of.often() else None
    shape = [of.size(1, 2), channels, *sizes]
    if not is_transposed:
        weights = of.operand(of.real(filters, channels // groups, *kernel), 0.8)
        return Drawn("Conv", strip([of.real(*shape), weights, bias]), ["float32"], attributes, tolerance=4e-6)
    if of.often(0.4):
        attributes["output_padding"] = [of.size(0, stride - 1) for stride in strides]
    if of.often(0.3) and scheme != "pads":
        steps = attributes.get("dilations", [1] * rank)
        natural = [
            (size - 1) * stride + (window - 1) * step + 1
            for size, stride, window, step in zip(sizes, strides, kernel, steps, strict=True)
        ]
        attributes["output_shape"] = [max(1, size - of.size(0, 2)) for size in natural]
    weights = Constant(of.real(channels, per_group, *kernel))
    operands = strip([of.real(*shape), weights, bias])
    return Drawn("ConvTranspose", operands, ["float32"], attributes, tolerance=4e-6)


def deform_conv(of: Draw) -> Drawn:
    groups, parts = of.one([1, 1, 2]), of.one([1, 1, 2])
    per_group, kernel, sizes = 2 * of.size(1, 2), of.sizes(2, 1, 3), of.sizes(2, 3, 7)
    channels, filters, batch = groups * per_group, groups * of.size(1, 3), of.size(1, 2)
    strides, steps, pads = of.sizes(2, 1, 2), of.sizes(2, 1, 2), of.sizes(4, 0, 2)
    reach = [(window - 1) * step + 1 for window, step in zip(kernel, steps, strict=True)]
    sizes = [max(size, window) for size, window in zip(sizes, reach, strict=True)]
    counts = [
        (size + pads[axis] + pads[axis + 2] - reach[axis]) // strides[axis] + 1 for axis, size in enumerate(sizes)
    ]
    taps = kernel[0] * kernel[1]
    mask = of.rng.random((batch, parts * taps, *counts)).astype(np.float32) if of.often() else None
    operands = [
        *(of.real(batch, channels, *sizes), of.operand(of.real(filters, per_group, *kernel), 0.8)),
        *(of.real(batch, 2 * parts * taps, *counts), of.operand(of.real(filters)) if of.often() else None, mask),
    ]
    attributes = {"group": groups, "offset_group": parts, "strides": strides, "dilations": steps, "pads": pads}
    return Drawn("DeformConv", strip(operands), ["float32"], attributes, tolerance=4e-6, opset=19)


WINDOWS = {"Conv": conv, "DeformConv": deform_conv, "GlobalLpPool": global_lp_pool, "Pool": pool}
