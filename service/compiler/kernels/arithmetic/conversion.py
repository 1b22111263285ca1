"""Chooses the expressions of conversions between float32 values and stored bytes, and emits them on vectors of any
width.
"""

from __future__ import annotations

from service.compiler.kernels.arithmetic.numerics import STORED, bounds, expressed
from service.compiler.kernels.program import Buffer, Expr, load
from service.compiler.qnn.expressions.conversions import Conversion, Dequantization, Quantization
from service.compiler.qnn.expressions.tensors import TensorOps
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.scaling.affine import Dequantize, Quantizes
from service.compiler.qnn.operation import Operation


def quantization_of(mode: Mode, operation: Operation) -> Quantization:
    """Returns the kernel arithmetic of a `qnn.quantize` in `mode`.

    Raises:
        Declined: no kernel computes the mode's formula, or the type is not 8 bits with one scale.
    """
    kind = operation.quantized("out_type")
    bounds(kind)
    return expressed(mode, operation, Quantizes).quantization(kind, STORED)


def dequantization_of(mode: Mode, operation: Operation) -> Dequantization:
    """Returns the kernel arithmetic of a `qnn.dequantize` in `mode`. Raises the errors of `quantization_of`."""
    kind = operation.quantized("in_type")
    expressed(mode, operation, Dequantize)
    return Dequantization(kind.scale, bounds(kind).zero_point)


def convert(conversion: Conversion, numbers: Buffer, vector: Expr, lanes: int) -> Expr:
    """Converts a vector of `lanes` float32 values to bytes, or bytes to float32 values.

    Args:
        numbers: a buffer of int32 with the conversion's `numbers`.
    """
    ops = TensorOps(lanes)
    loaded = [ops.splat(load(numbers, index, 1)) for index in range(len(conversion.numbers))]
    converted = conversion.express(ops, vector, loaded)
    return ops.cast(converted, "uint8") if isinstance(conversion, Quantization) else converted
