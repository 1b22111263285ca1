"""The numbers of a product of two 8-bit matrices that are both computed at run time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, Epilogue, WideEpilogue
from service.compiler.kernels.arithmetic.numerics import bounds, expressed, require_finite
from service.compiler.kernels.group import Group, shape_of
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.requantization import Requantization
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.expressed import Converts
from service.compiler.qnn.operation import Operation

_LARGEST = 255 * 255  # the largest magnitude of a product


@dataclass(frozen=True)
class Numbers:
    """The numbers that differ between products of one shape. These numbers are constants of the kernel and not part of
    its code.

    Attributes:
        zero_points: the zero point of the first matrix as unsigned bytes, and of the second matrix as signed bytes.
    """

    zero_points: tuple[int, int]
    epilogue: AnyEpilogue


def numbers_of(isa: Isa, mode: Mode, group: Group) -> Numbers:
    """Returns the numbers of a product.

    Raises:
        Declined: the product is neither requantized nor dequantized, or no kernel computes `mode`'s formula.
    """
    core, requantize = group.core, group.requantize
    if requantize is None:
        raise Declined("its sums are not scaled")
    depth = shape_of(core.call.args[0])[-1]
    if depth * _LARGEST >= 1 << 31:
        raise Declined(f"sums of {depth} products may leave 32 bits")
    lhs, rhs = (bounds(core.per_tensor(name)).zero_point for name in ("lhs_type", "rhs_type"))
    scale = _scale(isa, mode, requantize, depth)
    epilogue = WideEpilogue(scale, "float32") if group.wide else Epilogue(scale, bounds(group.out_type))
    return Numbers((lhs, rhs - 128), epilogue)


def _scale(isa: Isa, mode: Mode, requantize: Operation, depth: int) -> Requantization:
    """Returns the conversion of sums of `depth` products to bytes or to real values, with one scale."""
    in_type = requantize.per_tensor("in_type")
    if in_type.zero_point:
        raise Declined(f"sums of type {in_type} have a zero point")
    if len(requantize.call.args) > 1:
        raise Declined("a bias is added")
    largest = np.array([depth * _LARGEST])
    scale = expressed(mode, requantize, Converts).requantization(requantize, Facts(-largest, largest), None)
    if scale.is_wide:
        raise Declined("its scaled sums may leave 32 bits")
    require_finite(scale.arrays)
    return scale.extended(isa.lanes)
