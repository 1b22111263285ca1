"""Convolutions and dense layers drawn by Hypothesis. Each is a QNN model for the oracle, and arguments for a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import assume, reject
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, Epilogue, WideEpilogue
from service.compiler.kernels.arithmetic.numerics import addition, bounds, dequantization, requantization
from service.compiler.kernels.group import image_shape, stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, Window, folded_bias
from service.compiler.kernels.layout import Contiguous, Halo, Image
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.expressions.requantization import Kept
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.sums.accumulate import centered
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.arrays import Array
from tests.support.images import (
    Draw,
    arrays,
    blocked,
    halos,
    laid_out,
    quantized_types,
    read_back,
    run,
    stored,
    with_halo,
)
from tests.support.qnn_models import SIGNED_MODES, Emit, float32, module_of

KERNELS = [(1, 1), (2, 2), (3, 3), (5, 5), (7, 7), (1, 7), (7, 1), (3, 1), (4, 6)]
_CHANNELS, _FILTERS, _OF_DEPTHWISE = [1, 3, 16, 24, 50], [1, 16, 24, 100], [3, 16, 31, 33, 100]


@dataclass(frozen=True)
class Case:
    """One layer.

    Attributes:
        weights: `[O, KH, KW, C / groups]`, less their zero point.
        bias: the folded bias, padded to whole blocks.
        inputs: images in the layout that kernels use.
        expected: the oracle's result. If it has 8 bits, it is in stored form and inside the halo; otherwise it is
            unchanged.
    """

    layer: Layer
    weights: Array
    bias: Array
    epilogue: AnyEpilogue
    inputs: list[Array]
    expected: Array

    def check(self, isa: Isa, kernel: Kernel) -> None:
        """Checks that a kernel writes the oracle's result, and writes the zero point to the halo."""
        written = run(isa, kernel, *self.inputs, dtype=self.epilogue.dtype)
        if isinstance(self.epilogue, WideEpilogue):
            np.testing.assert_array_equal(written, self.expected.reshape(-1))
            return
        image = read_back(self.layer.destination, written)[..., : self.layer.destination.channels]
        np.testing.assert_array_equal(image, self.expected)


@dataclass(frozen=True)
class _Operands:
    x: Array
    in_type: QuantizedType
    weight: Array
    weight_type: QuantizedType
    bias: Array | None

    @property
    def constants(self) -> tuple[relax.Expr, relax.Expr | None]:
        return relax.const(self.weight), None if self.bias is None else relax.const(self.bias)


def convolution(
    draw: Draw,
    isa: Isa,
    mode: Mode,
    *,
    depthwise: bool = False,
    kernel: tuple[int, int] | None = None,
    neighbours: bool = False,
) -> Case:
    """Draws a requantized `qnn.conv2d`, with or without a residual.

    Args:
        neighbours: true for kernels that read adjacent pixels, from an even number of small blocks (`Isa.pairs`).
    """
    window, padding, size = _geometry(draw, kernel or draw(st.sampled_from(KERNELS)))
    drawn = _OF_DEPTHWISE if depthwise else [8, 14, 24, 64] if neighbours else _CHANNELS
    channels = draw(st.sampled_from(drawn))
    window = replace(window, strides=(window.strides[0], 1)) if neighbours else window
    filters = channels if depthwise else draw(st.sampled_from(_FILTERS))
    shape = (draw(st.sampled_from([1, 1, 2, 3])), *size, channels)
    operands = _operands(draw, shape, (filters, *window.kernel, 1 if depthwise else channels))

    def accumulate(x: relax.Var) -> relax.Call:
        return ops.conv2d(
            x,
            *operands.constants,
            operands.in_type,
            operands.weight_type,
            strides=window.strides,
            padding=padding,
            dilation=window.dilation,
            groups=channels if depthwise else 1,
        )

    packed = not depthwise and not neighbours and window.dilation[1] == 1 and draw(st.booleans())
    halo = Halo(*padding)
    source = Image(*shape, 0, halo | draw(halos())) if packed else draw(blocked(isa, shape, halo))
    return _case(draw, mode, isa, operands, accumulate, source, window)


def dense(draw: Draw, isa: Isa, mode: Mode) -> Case:
    """Draws a requantized `qnn.dense`, whose rows are images of one pixel."""
    rows, depth = draw(st.integers(1, 6)), draw(st.sampled_from([3, 16, 100, 300]))
    operands = _operands(draw, (rows, depth), (draw(st.sampled_from([1, 24, 100, 1001])), depth))

    def accumulate(x: relax.Var) -> relax.Call:
        return ops.dense(x, *operands.constants, operands.in_type, operands.weight_type)

    source = (
        Image(rows, 1, 1, depth, 0, draw(halos())) if draw(st.booleans()) else draw(blocked(isa, (rows, 1, 1, depth)))
    )
    return _case(draw, mode, isa, operands, accumulate, source, Window((1, 1)))


def _geometry(draw: Draw, kernel: tuple[int, int]) -> tuple[Window, tuple[int, ...], tuple[int, int]]:
    """Draws a window, the padding (top, left, bottom, right), and the height and width of an image for it."""
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (1, 2), (2, 1), (3, 3)]))
    padding = tuple(draw(st.integers(0, min(extent, 3))) for extent in kernel * 2)
    size = []
    for axis, most in ((0, 6), (1, 10)):
        span = (kernel[axis] - 1) * dilation[axis] + 1
        steps = (draw(st.integers(1, most)) - 1) * strides[axis] + draw(st.integers(0, strides[axis] - 1))
        size.append(max(1, steps + span - padding[axis] - padding[axis + 2]))
    return Window(kernel, strides, dilation, padding[:2]), padding, (size[0], size[1])


def _operands(draw: Draw, shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> _Operands:
    storage = draw(st.sampled_from(["int8", "uint8"]))
    weight_type = draw(_weight_types(storage, weight_shape[0]))
    bias = np.random.default_rng(draw(st.integers(0, 99))).integers(-5000, 5000, weight_shape[0]).astype(np.int32)
    if draw(st.sampled_from([False, False, False, True])):  # accumulators overflow, like those of the reference
        bias[::2] = np.iinfo(np.int32).max - 3
    return _Operands(
        draw(arrays(shape, storage)),
        draw(quantized_types(storage)),
        draw(_weights(weight_shape, weight_type)),
        weight_type,
        draw(st.sampled_from([bias, bias, None])),
    )


@st.composite
def _weight_types(draw: st.DrawFn, storage: str, filters: int) -> QuantizedType:
    """Draws a per-axis symmetric type; or an unsigned type with a zero point, as in legacy models."""
    if storage == "uint8":
        return draw(quantized_types("uint8"))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    scales = tuple(float32(scale) for scale in 10 ** rng.uniform(-3, -1, filters))
    return QuantizedType("int8", scales, axis=0)


@st.composite
def _weights(draw: st.DrawFn, shape: tuple[int, ...], weight_type: QuantizedType) -> Array:
    """Draws any weights, or weights of which only a few exceed int8 after their zero point is subtracted."""
    kind = draw(st.sampled_from(["any", "few"]))
    drawn = draw(arrays(shape, weight_type.storage))
    if kind == "any" or weight_type.storage == "int8":
        return drawn
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    near = np.clip(weight_type.zero_point + rng.integers(-100, 100, shape), 0, 255)
    return np.where(rng.random(shape) < 0.01, drawn, near).astype(weight_type.storage)


def _case(
    draw: Draw,
    mode: Mode,
    isa: Isa,
    operands: _Operands,
    accumulate: Callable[[relax.Var], relax.Call],
    source: Image,
    window: Window,
) -> Case:
    sums = oracle.run(module_of([_signature(operands.x)], lambda emit, xs: emit(accumulate(xs[0]))), mode, [operands.x])
    accumulators = accumulator_type(operands.in_type, operands.weight_type, sums[0].ndim - 1)
    if draw(st.sampled_from([False, False, False, True])):
        return _wide_case(mode, isa, operands, accumulate, source, window, draw(st.sampled_from([accumulators, None])))
    storage, scale = operands.x.dtype.name, _fitting_scale(draw, sums[0], accumulators)
    assume(mode.name in SIGNED_MODES or storage == "uint8")
    own, other, out = (draw(quantized_types(storage, float32(scale * factor))) for factor in (1, 3, 2))
    # A fused addition exists only in modes whose engine supports int8.
    residual = draw(arrays(sums[0].shape, storage)) if mode.name in SIGNED_MODES and draw(st.booleans()) else None
    residual_is_lhs = draw(st.booleans())
    fused = residual is not None and "requantize_add" in mode.formulas and draw(st.booleans())

    def body(emit: Emit, xs: list[relax.Var]) -> relax.Var:
        if fused:
            return emit(ops.requantize_add(emit(accumulate(xs[0])), xs[1], accumulators, other, own))
        result = emit(ops.requantize(emit(accumulate(xs[0])), accumulators, own))
        if residual is None:
            return result
        if residual_is_lhs:
            return emit(ops.add(xs[1], result, other, own, out))
        return emit(ops.add(result, xs[1], own, other, out))

    inputs = [operands.x] if residual is None else [operands.x, residual]
    module = module_of([_signature(values) for values in inputs], body)
    (expected,) = oracle.run(module, mode, inputs)
    operations = [found for _, _, found in graph.operations(graph.main_of(module)) if found is not None]
    shape = image_shape(expected.shape)
    assert shape is not None
    destination = draw(blocked(isa, shape))
    of_residual = None if residual is None else draw(blocked(isa, shape))
    epilogue = _epilogue(mode, operations, destination.blocks * isa.lanes, residual_is_lhs)
    images = [laid_out(source, _pixels(operands.x), stored_zero_point(operands.in_type))]
    if of_residual is not None:
        images.append(laid_out(of_residual, _pixels(inputs[1])))
    return Case(
        Layer(source, destination, window, of_residual),
        *_folded(isa, operands, destination),
        epilogue,
        images,
        with_halo(destination, _pixels(expected), stored_zero_point(own if residual is None or fused else out)),
    )


def _wide_case(
    mode: Mode,
    isa: Isa,
    operands: _Operands,
    accumulate: Callable[[relax.Var], relax.Call],
    source: Image,
    window: Window,
    accumulators: QuantizedType | None,
) -> Case:
    """Returns the case of a layer whose output is its sums; or their real values, if `accumulators` is given."""

    def body(emit: Emit, xs: list[relax.Var]) -> relax.Var:
        sums = emit(accumulate(xs[0]))
        return sums if accumulators is None else emit(ops.dequantize(sums, accumulators))

    module = module_of([_signature(operands.x)], body)
    (expected,) = oracle.run(module, mode, [operands.x])
    shape = image_shape(expected.shape)
    assert shape is not None
    destination = Contiguous.of(shape, isa.lanes)
    *_, last = (found for _, _, found in graph.operations(graph.main_of(module)) if found is not None)
    channels = destination.blocks * isa.lanes
    scaled = Kept() if accumulators is None else dequantization(mode, last, channels)
    images = [laid_out(source, _pixels(operands.x), stored_zero_point(operands.in_type))]
    epilogue = WideEpilogue(scaled, expected.dtype.name)
    return Case(Layer(source, destination, window), *_folded(isa, operands, destination), epilogue, images, expected)


def _folded(isa: Isa, operands: _Operands, destination: Image) -> tuple[Array, Array]:
    """Returns weights and bias in the form of `Case`."""
    weights = centered(operands.weight, operands.weight_type).astype(np.int32)
    weights = weights if weights.ndim == 4 else weights[:, None, None, :]
    channels = destination.blocks * destination.block
    zero_point = stored_zero_point(operands.in_type) - isa.operand_zero_point
    return weights, folded_bias(operands.bias, weights, zero_point, channels)


def _epilogue(mode: Mode, operations: list[Operation], channels: int, residual_is_lhs: bool) -> Epilogue:
    _, requantize, *add = operations
    own = bounds(requantize.per_tensor("out_type"))
    try:
        plain = Epilogue(requantization(mode, requantize, channels, stored=not add), own)
    except Declined:
        reject()  # the sums are too large for the mode's kernels
    if not add:
        return plain
    added = addition(mode, add[0], residual_is_lhs)
    return replace(plain, out=bounds(add[0].per_tensor("out_type")), addition=added, middle=own)


def _fitting_scale(draw: Draw, sums: Array, accumulators: QuantizedType) -> float:
    """Draws a scale for which some outputs saturate and others do not. Sometimes it is far too small or too large."""
    real = np.abs(sums * np.array(accumulators.scales)).mean() + 1e-6
    return float(real / 60 * draw(st.sampled_from([1, 1, 1, 0.3, 3, 1e-3, 1e-9, 1e3])))


def _signature(values: Array) -> tuple[tuple[int, ...], str]:
    return values.shape, values.dtype.name


def _pixels(values: Array) -> Array:
    """Returns values as kernels store them, in the form `[N, H, W, C]`."""
    shape = image_shape(values.shape)
    assert shape is not None
    return stored(values).reshape(shape)
