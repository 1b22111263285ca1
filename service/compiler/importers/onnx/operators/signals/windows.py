"""Window functions and mel filters. Their operands must be constant, so that the results are constants as well.

The steps and types are those of ONNX Runtime (core/providers/cpu/signal/window_functions.cc), which has a value of pi
of nine digits.
"""

from __future__ import annotations

import math

import numpy as np

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert
from service.core.models.arrays import Array

_LONGEST = 1 << 16
_LARGEST = 1 << 22
_TAU = 2 * 3.14159265
# The coefficients of the cosines, in float32.
_HANN = (np.float32(0.5), np.float32(0.5), np.float32(0))
_HAMMING = (np.float32(25) / np.float32(46), np.float32(1) - np.float32(25) / np.float32(46), np.float32(0))
_BLACKMAN_LAST = np.float32(0.16) / np.float32(2)
_BLACKMAN = (np.float32(0.5) - _BLACKMAN_LAST, np.float32(0.5), _BLACKMAN_LAST)


def _window(coefficients: tuple[np.float32, ...]) -> Convert:
    """Returns the converter of a window: a sum of cosines. The input is the window's length."""

    def convert(node: Node) -> Value:
        length = node.whole(0)
        node.require_supported(
            0 < length <= _LONGEST, f"has a window of {length}; only 1 to {_LONGEST} can be compiled"
        )
        first, second, third = (float(each) for each in coefficients)
        count = length if node.attribute("periodic", 1) else length - 1
        node.require_supported(count > 0, "has a symmetric window of one element, which is not defined")
        at = np.arange(length) * (_TAU / count)
        values = first - second * np.cos(at)
        if third:
            values = values + third * np.cos(2 * (_TAU / count) * np.arange(length))
        return node.folded(_converted(node, values))

    return convert


def mel_weight_matrix(node: Node) -> Value:
    """Inputs: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz. Returns triangular filters,
    `[dft_length / 2 + 1, num_mel_bins]`.
    """
    bins, length, rate = (node.whole(index) for index in range(3))
    low, high = (np.float32(node.number(index)) for index in (3, 4))
    rows = length // 2 + 1
    node.require_supported(
        bins > 0 and length > 0 and bins * rows <= _LARGEST, f"computes filters [{rows}, {bins}], which are too large"
    )
    node.require(rate > 0 and bool(0 <= low < high), f"has {rate} samples per second and the edges {low} and {high}")
    first, last = (2595 * math.log10(1 + float(edge) / 700) for edge in (low, high))
    step = (last - first) / (bins + 2)
    hertz = [700 * (10.0 ** ((first + step * index) / 2595) - 1) for index in range(bins + 2)]
    points = [math.floor((length + 1) * each / rate) for each in hertz]
    highest = math.floor((length + 1) * float(high) / rate)
    node.require(highest < rows and points[-1] < rows, f"has filters up to {high} Hz, beyond the spectrum")
    filters = np.zeros((rows, bins))
    for column in range(bins):
        begin, center, end = points[column : column + 3]
        if begin == center:
            filters[center, column] = 1
        else:
            rising = np.arange(center - begin + 1, dtype=np.float32) / np.float32(center - begin)
            filters[begin : center + 1, column] = rising
        if end > center:
            falling = np.arange(end - center, 0, -1).astype(np.float32) / np.float32(end - center)
            filters[center:end, column] = falling
    values = _converted(node, filters)
    return values if values.size <= _LONGEST else node.literal(values)


def _converted(node: Node, values: Array) -> Array:
    number = node.attribute("output_datatype", 1)
    dtype = DTYPES.get(number, f"type {number}")
    node.require_supported(dtype in ("float32", "int32", "int64"), f"computes {dtype}, which cannot be compiled")
    return values.astype(dtype)


WINDOWS: dict[str, tuple[Convert, tuple[int, int]]] = {
    "BlackmanWindow": (_window(_BLACKMAN), (1, 1)),
    "HammingWindow": (_window(_HAMMING), (1, 1)),
    "HannWindow": (_window(_HANN), (1, 1)),
    "MelWeightMatrix": (mel_weight_matrix, (5, 5)),
}
