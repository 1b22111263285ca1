"""Elementwise operators of two quantized images (`qnn.expressions.pairs`)."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.numerics import arithmetic_of, bounds
from service.compiler.kernels.cuda.text import constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.types.elements import THREADS, Blocks, launch_for, require_blocks
from service.compiler.kernels.cuda.types.epilogues import arithmetic_code
from service.compiler.kernels.cuda.types.images import check_sizes
from service.compiler.kernels.kernel import Declined, DeviceFunction, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation


def pairwise(lhs: Image, rhs: Image, destination: Image, operation: Operation, mode: Mode) -> Kernel:
    """Returns the kernel of an operator of two tensors.

    An operand whose batch, height or width is 1 is repeated along that dimension if the destination is larger. For
    example, squeeze-and-excitation multiplies `[N, H, W, C]` by `[N, 1, 1, C]`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator, or an image is packed or too large, or channels
            are broadcast.
    """
    require_blocks(lhs, rhs, destination)
    check_sizes(lhs, rhs, destination)
    if any(operand.channels != destination.channels for operand in (lhs, rhs)):
        raise Declined("channels are broadcast")
    arithmetic, out = arithmetic_of(mode, operation), bounds(operation.per_tensor("out_type"))
    code = arithmetic_code(arithmetic)
    numbers = np.array([out.zero_point, out.low, out.high, *arithmetic.numbers], np.int32)
    constants = (*code.arrays, numbers)
    names = [f"constant_{index}" for index in range(len(constants))]
    to = Blocks.of(destination)
    operands = [Blocks.of(operand).repeated(to.extents) for operand in (lhs, rhs)]
    types = [to.order, to.strides, *(operand.strides for operand in operands)]
    body = [
        f"const auto arithmetic = {code.made_of(names[:-1])};",
        f"octet::pairwise<{', '.join(types)}>(lhs, rhs, arithmetic, {names[-1]}, destination);",
    ]
    parameters = [f"const octet::u8* __restrict__ {name}" for name in ("lhs", "rhs")]
    parameters += [*constant_parameters(constants), "octet::u8* __restrict__ destination"]
    text = translation_unit("pairs.cuh", kernel_function(THREADS, parameters, body), code.definition)
    function = DeviceFunction(text, launch_for(to))
    return Kernel(operation.name.removeprefix("qnn."), function, constants, destination.size_bytes)
