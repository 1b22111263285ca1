"""Chooses the kernel for a float32 product of the model, and prepares the product's geometry and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple

import numpy as np

from service.compiler.kernels.choices import Choices
from service.compiler.kernels.group import Group, PlainKernel, shape_of
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.layout import NO_HALO, Halo
from service.compiler.kernels.matrices import Strided
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.float.blocks import Blocked
from service.compiler.kernels.simd.float.depthwise import Depthwise, float_depthwise
from service.compiler.kernels.simd.float.factors import SINGLES, BFloat16Pairs, Factors
from service.compiler.kernels.simd.float.memory import Padded
from service.compiler.kernels.simd.float.product import Operands, float_product
from service.compiler.kernels.simd.float.tiles import Geometry, Outer, key_of, ranked
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics.sums.bfloat16 import is_bfloat16
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.products import length_of
from service.core.models.arrays import Array

_BFLOAT16_BITS = 16
_LARGEST = (1 << 31) - 1  # the largest number of elements of a tensor, whose indices are int32


def float_kernel(isa: Isa, group: Group, choices: Choices) -> PlainKernel:
    """Returns the kernel for one of `REAL_PRODUCTS`.

    The depthwise kernel is not used for bfloat16. This kernel would not be faster in bfloat16, because the neighbor of
    an element belongs to another channel, so that one half of each pair would be unused. A depthwise convolution in
    bfloat16 is computed as independent products, one for each group.

    Raises:
        Declined: no kernel computes the product.
    """
    core = group.core
    if core.name == "qnn.real_conv2d" and not is_bfloat16(core) and (layer := _depthwise(core)) is not None:
        with suppress(Declined):
            return PlainKernel(float_depthwise(isa, layer), NO_HALO, 0)
    geometry, operands = _geometry(group)
    largest = max(operands.lhs, operands.rhs, operands.out, operands.padded.size if operands.padded else 0)
    if largest > _LARGEST or math.prod(shape_of(group.output)) == 0 or geometry.depth == 0:
        raise Declined("its tensors are empty, or have more than 2**31 elements")
    blocked = operands.weights if isinstance(operands.weights, Blocked) else None
    bits = blocked.bits if blocked is not None else 0 if geometry.group == 1 else _BFLOAT16_BITS
    key = key_of(isa, geometry, bits, group.length)
    tiles = ranked(isa, geometry, decoded=blocked is not None, length=group.length)
    numbers = choices.choose(key, [astuple(tile) for tile in tiles])
    kernel: Kernel = float_product(isa, geometry, operands, Tile(*numbers))
    choices.note(key, numbers, kernel.symbol)
    return PlainKernel(kernel, NO_HALO, 0)


def _geometry(group: Group) -> tuple[Geometry, Operands]:
    match group.core.name:
        case "qnn.real_matmul":
            return _matrices(group)
        case "qnn.block_matmul":
            return _blocks(group.core)
        case _:
            return _convolution(group.core)


def _blocks(core: Operation) -> tuple[Geometry, Operands]:
    """Returns the geometry and operands of a `qnn.block_matmul`.

    All left matrices are multiplied by the same weights, so their rows are joined to one matrix.
    """
    x, (depth, columns) = shape_of(core.call.args[0]), shape_of(core.call.args[1])
    stored, scales, points, *bias = (value_of(arg) for arg in core.call.args[1:])
    if stored is None or scales is None or points is None or any(each is None for each in bias):
        raise Declined("its weights are not constant")
    size, bits = core.integer("block_size"), core.integer("bits")
    if max(stored.max(initial=0), points.max(initial=0)) >> bits:
        raise Declined(f"its weights do not fit {bits} bits")
    rows = math.prod(x[:-1])
    geometry = Geometry((), (1, rows), (0, depth), (0, columns), ((1, 0), (1, 0)), depth, columns)
    biases = bias[0].reshape(1, columns) if bias and bias[0] is not None else None
    weights = Blocked(stored, scales, points, size, bits)
    return geometry, Operands(rows * depth, 0, rows * columns, weights, biases)


def _matrices(group: Group) -> tuple[Geometry, Operands]:
    """Returns the geometry and operands of a `qnn.real_matmul`.

    Views of the operands that split, transpose or join attention heads are read in place.
    """
    core, factors = group.core, _factors(group.core)
    lhs, rhs, out = (shape_of(each) for each in (*core.call.args[:2], core.call))
    weights, bias = value_of(core.call.args[1]), _bias(core)
    left, right, made = group.matrices or (
        Strided.of(lhs).broadcast((*out[:-2], *lhs[-2:])),
        Strided.of(rhs).broadcast((*out[:-2], *rhs[-2:])),
        Strided.of(out),
    )
    depth, columns = right.shape[-2:]
    outer, rows = _join_dimensions(
        [
            Outer(extent, *steps)
            for extent, *steps in zip(out[:-2], *(each.strides for each in (left, right, made)), strict=False)
        ],
        Outer(out[-2], left.strides[-2], 0, made.strides[-2]),
    )
    steps = right.strides[-2:] if weights is None else None
    panels = None
    if weights is not None:
        panels = weights.reshape(-1, depth, columns)
        outer = tuple(Outer(each.extent, each.lhs, each.rhs // (depth * columns), each.out) for each in outer)
    geometry = Geometry(
        outer,
        (1, rows.extent),
        (0, rows.lhs),
        (0, rows.out),
        ((1, 0), (1, 0)),
        depth,
        columns,
        None if steps is None else (steps[0], 1) if right.of_rows else (1, steps[1]),
        (left.offset, 0 if steps is None else right.offset, made.offset),
        factors.size,
    )
    biases = None if bias is None else np.broadcast_to(bias, (1 if panels is None else len(panels), columns))
    length = group.length if panels is None else None
    sizes = [math.prod(shape_of(var)) for var in (*group.inputs, group.output)]
    return geometry, Operands(
        sizes[0], 0 if steps is None else sizes[1], sizes[-1], panels, biases, None, factors, length
    )


def _join_dimensions(batch: Sequence[Outer], rows: Outer) -> tuple[tuple[Outer, ...], Outer]:
    """Joins batch dimensions that are contiguous in all operands.

    Batch dimensions along which the right operand does not change are joined with the rows of the matrices.
    """
    found: list[Outer] = []
    for each in (*(each for each in batch if each.extent > 1), rows):
        if found and found[-1] == Outer(found[-1].extent, *(each.extent * step for step in astuple(each)[1:])):
            each = Outer(found.pop().extent * each.extent, each.lhs, each.rhs, each.out)
        found.append(each)
    return tuple(found[:-1]), found[-1]


def _depthwise(core: Operation) -> Depthwise | None:
    """Returns the layer if each channel has one filter of its own, else None."""
    weights, (n, height, width, channels) = value_of(core.call.args[1]), shape_of(core.call.args[0])
    filters, kernel_h, kernel_w, per_group = shape_of(core.call.args[1])
    if weights is None or per_group != 1 or not filters == channels == core.integer("groups") > 1:
        return None
    top, left, bottom, right = core.ints("padding", 4, 0)
    padded, made = Padded((n, height, width, channels), Halo(top, left, bottom, right)), shape_of(core.call)
    if max(padded.size, math.prod(made)) > _LARGEST or 0 in made:
        return None
    (stride_h, stride_w), (step_h, step_w) = core.ints("strides", 2, 1), core.ints("dilation", 2, 1)
    window = Window((kernel_h, kernel_w), (stride_h, stride_w), (step_h, step_w))
    return Depthwise(padded, (made[1], made[2]), window, weights[..., 0], _bias(core))


def _convolution(core: Operation) -> tuple[Geometry, Operands]:
    weights, bias = value_of(core.call.args[1]), _bias(core)
    if weights is None:
        raise Declined("its weights are not constant")
    source, (n, height, width, filters) = shape_of(core.call.args[0]), shape_of(core.call)
    groups, (_, kernel_h, kernel_w, per_group) = core.integer("groups"), weights.shape
    strides, dilation = core.ints("strides", 2, 1), core.ints("dilation", 2, 1)
    top, left, bottom, right = core.ints("padding", 4, 0)
    halo = Halo(top, left, bottom, right)
    padded = Padded((source[0], source[1], source[2], source[3]), halo) if halo else None
    (rows, columns), channels = padded.extents if padded else source[1:3], source[3]
    own = weights.reshape(groups, filters // groups, -1).transpose(0, 2, 1)
    biases = None if bias is None else bias.reshape(groups, -1)
    factors = _factors(core)
    operands = Operands(math.prod(source), 0, n * height * width * filters, own, biases, padded, factors)
    each: tuple[Outer, ...] = (Outer(groups, per_group, 1, filters // groups),) if groups > 1 else ()
    if (kernel_h, kernel_w) == strides == (1, 1):  # the pixels of all images are treated as one row
        grid, lhs_steps, out_steps = (1, n * height * width), (0, channels), (0, filters)
    else:
        images = Outer(n, rows * columns * channels, 0, height * width * filters)
        each = (images, *each) if n > 1 else each
        grid, out_steps = (height, width), (width * filters, filters)
        lhs_steps = (strides[0] * columns * channels, strides[1] * channels)
    taps = ((kernel_h, dilation[0] * columns * channels), (kernel_w, dilation[1] * channels))
    run = per_group
    if groups == 1 and dilation[1] == 1:  # the input values under a kernel row are contiguous
        taps, run = (taps[0], (1, 0)), kernel_w * channels
    geometry = Geometry(each, grid, lhs_steps, out_steps, taps, run, filters // groups, group=factors.size)
    return geometry, operands


def _factors(core: Operation) -> Factors:
    return BFloat16Pairs() if is_bfloat16(core) else SINGLES


def _bias(core: Operation) -> Array | None:
    if len(core.call.args) < 3 or (core.name == "qnn.real_matmul" and length_of(core) is not None):
        return None
    bias = value_of(core.call.args[2])
    if bias is None:
        raise Declined("its bias is not constant")
    return bias
