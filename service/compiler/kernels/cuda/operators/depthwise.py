"""Depthwise convolutions on GPUs. Instantiates the template `source/depthwise.cuh` for a geometry, tile and
epilogue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from math import ceil

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.arithmetic.taps import Taps
from service.compiler.kernels.cuda.gpus import Gpu
from service.compiler.kernels.cuda.operators.reads import int8_parts
from service.compiler.kernels.cuda.text import constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types import images
from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.cuda.types.outputs import output_code
from service.compiler.kernels.kernel import Declined, DeviceFunction, Kernel
from service.compiler.kernels.layer import Layer
from service.core.artifacts.call_plan import Launch
from service.core.models.arrays import Array
from service.core.words import plural

_THREADS = 128
_QUAD = 4  # the number of channels that a thread computes, and the number of pixels in a vector
_WARP = 32
_MOST_UNROLLED = 512  # the largest number of products in the unrolled code of a thread
_MOST_REGISTERS = 128  # the largest number of registers of a thread, so that a multiprocessor can run 16 warps
_OWN_REGISTERS = 48  # the registers of a thread in addition to its sums and weights
_SPARE_REGISTERS = 32  # the registers by which the compiler may exceed the estimate
_REGISTERS = 65536
_HIDING_WARPS = 12  # the number of warps with which a multiprocessor hides latency

# The instructions that a thread needs to transpose a vector, for the epilogue of a value, and for everything else.
_TRANSPOSE, _EPILOGUE, _OWN = 8, 9, 100

_LATENCY_CYCLES = 1500  # the latency of a thread's first loads from memory, and of the instructions that depend on them


@dataclass(frozen=True)
class DepthwiseTile:
    """The output pixels that a thread computes, for four channels.

    Attributes:
        rows: the number of rows of pixels.
        columns: the number of columns of pixels.
        unrolled: true if the loop over kernel rows is unrolled. Pixels that several kernel rows read then stay in
            registers.
    """

    rows: int
    columns: int
    unrolled: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, astuple(self)))

    @staticmethod
    def of(numbers: tuple[int, ...]) -> DepthwiseTile:
        rows, columns, unrolled = numbers
        return DepthwiseTile(rows, columns, bool(unrolled))


def depthwise(layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, tile: DepthwiseTile) -> Kernel:
    """Returns the kernel of a depthwise convolution, its requantization, and a residual addition if there is one.

    Args:
        weights: `[C, KH, KW]` integers minus their zero point.
        bias: `[C]`, with the contribution of the source's zero point subtracted (`folded_bias`), extended to whole
            blocks.
        epilogue: an epilogue whose arrays are extended to whole blocks.

    Raises:
        Declined: the source is packed.
    """
    if layer.source.packed:
        raise Declined("a depthwise convolution reads blocks of channels")
    source, destination, window = layer.source, layer.destination, layer.window
    taps = Taps(window, tile.columns)
    first, *rest = int8_parts(_arranged(taps, weights, destination.blocks))
    below = window.dilation[0] * source.row
    own = [first.astype(np.int8).reshape(-1), *(_rest(rest, below) if rest else [])]
    output = output_code(layer, bias, epilogue, destination.blocks * BLOCK, first=len(own))
    constants = (*own, *output.constants)

    names = ", ".join(f"constant_{index}" for index in range(1, len(own)))
    read = f"source, constant_0, {output.bias}, octet::{f'Rest{{{names}}}' if rest else 'NoRest{}'}"
    kernel_rows = window.kernel[0]
    of_taps = (kernel_rows, _span(layer), window.strides[1], taps.run)
    of_sums = (layer.steps[0], below, tile.rows, tile.columns, kernel_rows if tile.unrolled else 1)
    grid = (destination.batch, destination.blocks, destination.height, destination.width, _THREADS)
    body = [
        f"using Shifts = octet::Shifts<{_join_numbers(taps.shifts)}>;",
        f"using Taps = octet::Taps<{_join_numbers(of_taps)}, Shifts>;",
        f"using Sums = octet::DepthwiseSums<Taps, {_join_numbers(of_sums)}>;",
        f"using Grid = octet::DepthwiseGrid<{_join_numbers(grid)}>;",
        f"using Window = {images.windows(layer)};",
        *output.statements,
        f"octet::depthwise<Taps, Sums, Grid, Window, {source.plane}>({read}, output);",
    ]
    parameters = ["const octet::u8* __restrict__ source", *output.residual, *constant_parameters(constants)]
    function = kernel_function(_THREADS, [*parameters, output.destination], body, _resident(layer, tile))
    text = translation_unit("depthwise.cuh", function, output.definitions)
    blocks = ceil(_items(layer, tile) / _THREADS) + images.border_blocks(destination, _THREADS)
    facts = {
        "tile": f"{tile.rows}x{tile.columns} pixels",
        "products": f"{plural(taps.products, 'product')} of {plural(len(taps.vectors), 'vector')} for each kernel row",
        "excess_rows": len(own[2]) if rest else 0,
    }
    launch = Launch((blocks, 1, 1), (_THREADS, 1, 1), 0)
    return Kernel("depthwise", DeviceFunction(text, launch), constants, output.size_bytes, facts)


def _arranged(taps: Taps, weights: Array, blocks: int) -> Array:
    """Converts weights `[C, KH, KW]` to `[blocks, KH, shifts, 32, 4]`, extended with zeros."""
    filled = np.zeros((blocks * BLOCK, *weights.shape[1:]), weights.dtype)
    filled[: len(weights)] = weights
    return taps.arrange(filled.reshape(blocks, BLOCK, *weights.shape[1:])).transpose(0, 2, 3, 1, 4)


def _rest(parts: list[Array], below: int) -> list[Array]:
    """Returns the remaining parts of weights beyond int8, as additional kernel rows of the few blocks that have any.

    Args:
        parts: the result of `int8_parts` without the first part.
        below: the distance in bytes from one row of a window to the next.

    Returns:
        `[blocks + 1] int32`, the index of each block's first additional row; `[rows] int32`, the byte offset of each
        additional row from the first row of a window; and the int8 weights of these rows.
    """
    starts, offsets, weights = [0], [], []
    for block in range(len(parts[0])):
        for part in parts:
            for (row,) in np.argwhere(part[block].any(axis=(1, 2, 3))).tolist():
                offsets.append(row * below)
                weights.append(part[block, row])
        starts.append(len(offsets))
    return [np.array(starts, np.int32), np.array(offsets, np.int32), np.stack(weights).astype(np.int8).reshape(-1)]


def ranked(gpu: Gpu, layer: Layer) -> list[DepthwiseTile]:
    """Returns the candidate tiles, the one with the fewest estimated cycles first."""
    height, width = layer.destination.height, layer.destination.width
    tiles = [
        DepthwiseTile(rows, columns, unrolled)
        for rows in (1, 2, 4, 8)
        for columns in (1, 2, 3, 4, 6, 7, 8)
        for unrolled in (True, False)
        if rows <= height and columns <= width
    ]
    fitting = [tile for tile in tiles if _fits(layer, tile)]
    return sorted(fitting or [DepthwiseTile(1, 1, unrolled=False)], key=lambda tile: cycles(gpu, layer, tile))


def cycles(gpu: Gpu, layer: Layer, tile: DepthwiseTile) -> float:
    """Estimates the cycles of the whole layer."""
    taps, kernel_rows = Taps(layer.window, tile.columns), layer.window.kernel[0]
    lines = _lines(layer, tile)
    stride = layer.window.strides[1]
    read, new = (tile.columns - 1) * stride + _span(layer), tile.columns * stride
    computing = (
        lines * len(taps.vectors) * _TRANSPOSE
        + tile.rows * kernel_rows * taps.products * _QUAD
        + tile.rows * tile.columns * _QUAD * _EPILOGUE
        + lines * read
        + kernel_rows * len(taps.shifts)
        + _OWN
    )
    warp_cycles = max(
        computing * _WARP * _QUAD / gpu.dot_macs,
        lines * read + kernel_rows * len(taps.shifts),
        lines * new * _WARP * _QUAD / gpu.near_bytes,
    )
    blocks = ceil(_items(layer, tile) / _THREADS)
    own = ceil(blocks / gpu.multiprocessors) * (_THREADS // _WARP)
    resident = min(own, _resident(layer, tile) * (_THREADS // _WARP))
    hidden = max(1.0, _HIDING_WARPS / resident)
    return _LATENCY_CYCLES + own * warp_cycles * hidden


def _span(layer: Layer) -> int:
    """Returns the number of pixels from the first to the last tap of a kernel row."""
    return (layer.window.kernel[1] - 1) * layer.window.dilation[1] + 1


def _lines(layer: Layer, tile: DepthwiseTile) -> int:
    """Returns the number of source rows that a tile loads. An unrolled tile loads each row only once."""
    (rows, _), (stride, _), (dilation, _) = layer.window.kernel, layer.window.strides, layer.window.dilation
    if not tile.unrolled:
        return tile.rows * rows
    return len({row * stride + below * dilation for row in range(tile.rows) for below in range(rows)})


def _registers(layer: Layer, tile: DepthwiseTile) -> int:
    """Estimates the registers of a thread."""
    taps = Taps(layer.window, tile.columns)
    return _QUAD * (tile.rows * tile.columns + len(taps.shifts)) + _OWN_REGISTERS


def _resident(layer: Layer, tile: DepthwiseTile) -> int:
    """Returns the number of thread blocks that can be resident on a multiprocessor."""
    return _REGISTERS // (_THREADS * (_registers(layer, tile) + _SPARE_REGISTERS))


def _fits(layer: Layer, tile: DepthwiseTile) -> bool:
    products = tile.rows * Taps(layer.window, tile.columns).products * _QUAD
    products *= layer.window.kernel[0] if tile.unrolled else 1
    return products <= _MOST_UNROLLED and _registers(layer, tile) <= _MOST_REGISTERS


def _join_numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _items(layer: Layer, tile: DepthwiseTile) -> int:
    """Returns the number of threads that compute the whole layer, one tile each."""
    image = layer.destination
    tiles = ceil(image.height / tile.rows) * ceil(image.width / tile.columns)
    return image.batch * image.blocks * tiles * (BLOCK // _QUAD)
