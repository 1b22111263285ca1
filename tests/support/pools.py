"""Models of one pool, mean or resize, with values drawn by Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.onnxruntime.mlas import WindowAverage
from service.compiler.qnn.numerics.torch.aten import EvenAverage
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import QNNPACK
from service.core.models.arrays import Array
from tests.support.images import Draw, arrays, quantized_types, shapes
from tests.support.qnn_models import SIGNED_MODES, module_of

_CHANNELS = [1, 3, 16, 33, 40, 70]


def pooled(
    name: str, shape: tuple[int, ...], in_type: QuantizedType, out_type: QuantizedType, **how: object
) -> Operation:
    """Returns the operator `qnn.<name>` on a tensor of `shape`, with the inferred type of its result."""
    return _operation(name, shape, in_type, in_type, out_type, **how)


def windows(draw: Draw, mode: str, name: str, storage: str) -> tuple[Operation, Array]:
    """Draws `qnn.max_pool2d` or `qnn.avg_pool2d`, and its input."""
    assume(mode in SIGNED_MODES or storage == "uint8")
    size = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    window = draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (1, 7), (5, 4), (20, 20), size]))
    padding = tuple(draw(st.integers(0, min(extent - 1, 6))) for extent in window * 2)
    if mode == QNNPACK and name == "avg_pool2d":  # Octet refuses padding at the top and left, because QNNPACK counts it
        padding = (0, 0, *padding[2:])
    assume(all(size[axis] + padding[axis] + padding[axis + 2] >= window[axis] for axis in (0, 1)))
    strides = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (3, 1), (1, 2)]))
    x = draw(arrays((draw(st.integers(1, 3)), *size, draw(st.sampled_from(_CHANNELS))), storage))
    in_type, clamped = draw(quantized_types(storage)), draw(quantized_types(storage))
    out_type = replace(in_type, storage_min=clamped.min, storage_max=clamped.max)
    how: dict[str, object] = {"pool_size": window, "strides": strides, "padding": padding}
    formula = get_mode(mode).formulas[name]
    if isinstance(formula, WindowAverage):  # this formula averages real values; others average stored values
        out_type, how["count_include_pad"] = clamped, draw(st.booleans())
    operation = pooled(name, x.shape, in_type, out_type, **how)
    if isinstance(formula, EvenAverage):  # the kernels round all channels in the same way
        assume(len(set(formula.centres(operation, x.shape[-1]))) == 1)
    return operation, x


def mean_of_an_image(draw: Draw, storage: str) -> tuple[Operation, Array]:
    """Draws `qnn.mean` over rows and columns, and its input."""
    size = draw(st.sampled_from([(1, 1), (7, 7), (25, 5), (3, 3), (1, 6)]))
    x = draw(arrays((draw(st.integers(1, 3)), *size, draw(st.sampled_from(_CHANNELS))), storage))
    types = (draw(quantized_types(storage)), draw(quantized_types(storage)))
    return pooled("mean", x.shape, *types, axes=(1, 2), keepdims=True), x


def interpolation(draw: Draw) -> tuple[Operation, Array]:
    """Draws `qnn.resize_bilinear`, and its input."""
    shape, size = draw(shapes()), draw(st.tuples(st.integers(1, 11), st.integers(1, 11)))
    kind = draw(quantized_types(draw(st.sampled_from(["int8", "uint8"]))))
    align_corners, half_pixel_centers = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    assume(not align_corners or min(size) > 1)
    operation = resized(shape, kind, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers)
    return operation, draw(arrays(shape, kind.storage))


def resized(
    shape: tuple[int, ...],
    kind: QuantizedType,
    size: tuple[int, int],
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Operation:
    how = {"size": size, "align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return _operation("resize_bilinear", shape, kind, kind, kind, **how)


def taken_pixels(draw: Draw) -> tuple[Operation, Array]:
    """Draws `qnn.take_pixels`, and its input."""
    shape = draw(shapes())
    rows, columns = (
        draw(st.lists(st.integers(0, extent - 1), min_size=1, max_size=11)) for extent in (shape[1], shape[2])
    )
    kind = draw(quantized_types(draw(st.sampled_from(["int8", "uint8"]))))
    return _operation("take_pixels", shape, kind, kind, rows=rows, columns=columns), draw(arrays(shape, kind.storage))


def _operation(
    name: str, shape: tuple[int, ...], source: QuantizedType, *types: QuantizedType, **how: Any
) -> Operation:
    module = module_of([(shape, source.storage)], lambda emit, xs: emit(getattr(ops, name)(xs[0], *types, **how)))
    (operation,) = (found for _, _, found in graph.operations(graph.main_of(module)) if found is not None)
    return operation
