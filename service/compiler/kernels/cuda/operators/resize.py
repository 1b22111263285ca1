"""Resizes images on GPUs, by bilinear interpolation or by copying the nearest pixels (`source/resize.cuh`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.compiler.kernels.arithmetic.interpolation import blend_of, tables_of
from service.compiler.kernels.arithmetic.numerics import bounds
from service.compiler.kernels.cuda.printer import Member, Text, struct
from service.compiler.kernels.cuda.text import constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types import images
from service.compiler.kernels.cuda.types.images import BLOCK, check_blocks
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.moving import taken_pixels
from service.compiler.qnn.operation import Operation
from service.core.artifacts.call_plan import Launch
from service.core.models.arrays import Array

_THREADS = 128
# The number of parts into which threads divide a block, for interpolation and for copying nearest pixels.
_QUADS, _CHUNKS = BLOCK // 4, BLOCK // 16


def resize_bilinear(source: Image, destination: Image, operation: Operation, mode: Mode) -> Kernel:
    """Returns the kernel of a `qnn.resize_bilinear`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator, or an image is packed.
    """
    check_blocks(source, destination)
    formula, bias = blend_of(mode, operation)
    corners = [Text(name) for name in "abcd"]
    blend = Member(
        "static i32 apply(i32 a, i32 b, i32 c, i32 d, i32 down, i32 right)",
        lambda ops: formula.express(ops, corners, Text("down"), Text("right"), bias),
    )
    tables = tables_of(formula, operation, source)
    rows, columns = ("{" + ", ".join(f"constant_{first + index}" for index in range(3)) + "}" for first in (0, 3))
    template = "octet::resize<octet::Blend, "
    arguments = f"octet::Axis{rows}, octet::Axis{columns}"
    return _kernel(
        "resize",
        source,
        destination,
        [*tables, _fill(operation)],
        _QUADS,
        template,
        arguments,
        struct("Blend", [], blend),
    )


def take_pixels(source: Image, destination: Image, operation: Operation) -> Kernel:
    """Returns the kernel of a `qnn.take_pixels`.

    Raises:
        Declined: an image is packed, or is not stored in 8 bits.
    """
    check_blocks(source, destination)
    rows, columns = taken_pixels(operation)
    positions = [np.array(rows, np.int32) * source.row, np.array(columns, np.int32) * source.pixel]
    constants = [*positions, _fill(operation)]
    return _kernel("pixels", source, destination, constants, _CHUNKS, "octet::take<", "constant_0, constant_1")


def _fill(operation: Operation) -> Array:
    """Returns the value of the destination's halo."""
    return np.array([bounds(operation.per_tensor("out_type")).zero_point], np.uint8)


def _kernel(
    family: str,
    source: Image,
    destination: Image,
    constants: Sequence[Array],
    of_pixel: int,
    template: str,
    arguments: str,
    definitions: str = "",
) -> Kernel:
    """Returns a resizing kernel.

    Args:
        constants: the arrays that the kernel reads. The last one contains the value of the halo.
        of_pixel: the number of parts into which threads divide a block of a pixel.
        template: the beginning of the C++ call: the function and its first template arguments.
        arguments: the arguments of the call between the source and the value of the halo.
        definitions: the text that defines the types of the template arguments.
    """
    body = [
        f"using Parts = {images.parts(destination, of_pixel)};",
        f"using Source = {images.blocks(source)};",
        f"using Destination = {images.blocks(destination)};",
        f"{template}Parts, Source, Destination, {_THREADS}>"
        f"(source, {arguments}, constant_{len(constants) - 1}, destination);",
    ]
    parameters = ["const octet::u8* __restrict__ source", *constant_parameters(constants)]
    function = kernel_function(_THREADS, [*parameters, "octet::u8* __restrict__ destination"], body)
    text = translation_unit("resize.cuh", function, definitions)
    launch = Launch((images.part_blocks(destination, of_pixel, _THREADS), 1, 1), (_THREADS, 1, 1), 0)
    return Kernel(family, DeviceFunction(text, launch), tuple(constants), destination.size_bytes)
