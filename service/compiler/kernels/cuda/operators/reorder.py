"""Converts between contiguous tensors, as in the model's inputs and outputs, and the images that kernels work on.

Also applies functions of a single byte to images.

Tensors are `[N, H, W, C]`, or `[N, C, H, W]` if `channels_first`.
"""

from __future__ import annotations

import math

import numpy as np

from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.arithmetic.tables import table_of
from service.compiler.kernels.cuda.text import TYPES, constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types.conversion import ElementCode, as_bytes, by_table, converted
from service.compiler.kernels.cuda.types.elements import THREADS, Blocks, launch_for, require_blocks
from service.compiler.kernels.cuda.types.images import BLOCK, CHUNK_BYTES, check_sizes
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.expressions.conversions import Dequantization, Quantization
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


def pack(
    destination: Image,
    dtype: str,
    zero_point: int,
    quantization: Quantization | None = None,
    *,
    channels_first: bool = False,
) -> Kernel:
    """Returns the kernel that converts a contiguous tensor to an image, and fills the halo.

    The kernel's inputs are the tensor `[N * H * W * C]` of `dtype`, without slack, and one uint8, the value of the
    halo. Filler after the last channel of the last block is set to 0.

    Args:
        destination: packed, or in blocks.
        dtype: uint8; int8, to which 128 is added; or float32 with a `quantization`.
        zero_point: the value of the halo, as stored.
        channels_first: true if the tensor is `[N, C, H, W]`, false if it is `[N, H, W, C]`.

    Raises:
        Declined: the dtype or the layout is not supported.
    """
    check_sizes(destination)
    conversion = as_bytes(dtype) if quantization is None else converted(quantization)
    ends = Blocks.contiguous(destination.shape, channels_first=channels_first), Blocks.of(destination)
    facts = _facts(destination, channels_first=channels_first)
    return _kernel("pack", *ends, conversion, zero_point, destination.size_bytes, facts)


def unpack(
    source: Image, dtype: str, dequantization: Dequantization | None = None, *, channels_first: bool = False
) -> Kernel:
    """Returns the kernel that converts an image to a contiguous tensor `[N * H * W * C]` of `dtype`, without slack.

    Args:
        source: packed, or in blocks.
        dtype: uint8; int8, for which 128 is subtracted; or float32 with a `dequantization`.
        channels_first: true if the tensor is `[N, C, H, W]`, false if it is `[N, H, W, C]`.

    Raises:
        Declined: the dtype or the layout is not supported.
    """
    check_sizes(source)
    conversion = as_bytes(dtype) if dequantization is None else converted(dequantization)
    ends = Blocks.of(source), Blocks.contiguous(source.shape, channels_first=channels_first)
    size, facts = math.prod(source.shape) * np.dtype(dtype).itemsize, _facts(source, channels_first=channels_first)
    return _kernel("unpack", *ends, conversion, 0, size, facts)


def look_up(source: Image, destination: Image, operation: Operation, mode: Mode) -> Kernel:
    """Returns the kernel of a function of one 8-bit value, in any mode.

    Such functions are `qnn.requantize` from one 8-bit type to another, those in `qnn.ops.unary`, and arithmetic with a
    uniform constant.

    Raises:
        Declined: a type is not 8 bits with one scale, or an image is packed, or too large.
    """
    zero_point = bounds(operation.per_tensor("out_type")).zero_point
    return table(source, destination, table_of(mode, operation), zero_point)


def table(source: Image, destination: Image, values: Array, zero_point: int) -> Kernel:
    """Returns the kernel that replaces each byte of an image by `values[byte]`.

    Args:
        values: `[256] uint8`, maps stored values to stored values.
        zero_point: the value of the destination's halo, as stored.

    Raises:
        Declined: an image is packed, or too large.
    """
    require_blocks(source, destination)
    check_sizes(source, destination)
    ends = Blocks.of(source).filled, Blocks.of(destination).filled
    return _kernel("table", *ends, by_table(values), zero_point, destination.size_bytes, {})


def _kernel(
    family: str,
    source: Blocks,
    destination: Blocks,
    conversion: ElementCode,
    zero_point: int,
    size_bytes: int,
    facts: dict[str, str],
) -> Kernel:
    element_bytes = np.dtype(conversion.destination).itemsize
    fill = [np.array([zero_point], np.uint8)] if destination.halo else []
    constants = (*fill, *conversion.numbers)
    names = [f"constant_{index}" for index in range(len(constants))]
    given = ["source", f"{conversion.type}{{{', '.join(names[len(fill) :])}}}"]
    if destination.lanes == 1 and source.lanes == BLOCK:
        pixels = destination.planes(-(-destination.channels // CHUNK_BYTES))
        function, launch = "split_planes", launch_for(pixels, CHUNK_BYTES)
        types = (pixels.order, destination.strides, source.strides, destination.channels)
    else:
        at_once = math.gcd(CHUNK_BYTES // element_bytes, source.lanes, destination.lanes, destination.channels)
        function, launch = "reorder", launch_for(destination, element_bytes)
        types = (destination.order, destination.strides, source.strides, at_once)
        given.append(f"{names[0]}[0]" if fill else "0")
    arguments = ", ".join(map(str, (*types, conversion.type)))
    body = [f"octet::{function}<{arguments}>({', '.join(given)}, destination);"]
    parameters = [f"const {TYPES[conversion.source]}* __restrict__ source", *constant_parameters(constants)]
    parameters += [f"{TYPES[conversion.destination]}* __restrict__ destination"]
    text = translation_unit("reorder.cuh", kernel_function(THREADS, parameters, body), conversion.definition)
    return Kernel(family, DeviceFunction(text, launch), constants, size_bytes, facts)


def _facts(image: Image, *, channels_first: bool) -> dict[str, str]:
    layout = {"layout": "packed" if image.packed else f"blocks of {image.block}"}
    return {**layout, "tensor": "channels first"} if channels_first else layout
