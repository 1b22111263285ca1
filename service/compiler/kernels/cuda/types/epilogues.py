"""Expresses the formulas of `kernels/arithmetic` as C++ types, and the arrays that these read.

The types of epilogues are in `source/requantize.cuh` and `source/addition.cuh`, the types of elementwise operators in
`source/pairs.cuh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.addition import Addition, FixedPointSum, ScaledAddition, SharedShiftSum
from service.compiler.kernels.arithmetic.onnxruntime_epilogues import FusedSum, ShiftedProduct
from service.compiler.kernels.arithmetic.pairs import Arithmetic, Product, RealProduct, Slope, Square, Sum
from service.compiler.kernels.arithmetic.requantization import (
    BiasedFloatScale,
    DoubleRounding,
    FloatScale,
    FloatValues,
    FusedScale,
    Kept,
    Requantization,
    SingleRounding,
    Words,
)
from service.compiler.kernels.arithmetic.torch_epilogues import BiasedScale, DequantizedScale, FloatSum
from service.compiler.kernels.kernel import Declined
from service.core.models.arrays import Array


@dataclass(frozen=True)
class Code:
    """A C++ type of `source`.

    Attributes:
        type: the name of the type, with its template arguments.
        arrays: the arrays that the type is constructed from. Each has one value for each channel, or a single value.
    """

    type: str
    arrays: tuple[Array, ...] = ()

    def made_of(self, names: Sequence[str]) -> str:
        """Returns the C++ expression that constructs the type from arrays with these names."""
        return f"{self.type}{{{', '.join(names)}}}"


def requantization_code(requantization: Requantization) -> Code:
    """Returns the C++ type of a requantization, and its arrays.

    Raises:
        Declined: `source` has no type for this formula.
    """
    arrays = requantization.arrays
    match requantization:
        case Kept() | FloatValues() | DequantizedScale() | SingleRounding() | ShiftedProduct():
            return Code(_named(requantization), arrays)
        case FloatScale(bounded=bounded) | BiasedFloatScale(bounded=bounded):
            return Code(_named(requantization, bounded), arrays)
        case BiasedScale(factors=factors, bounded=bounded):
            return Code(f"octet::{'' if factors is None else 'Fused'}BiasedScale<{_literal(bounded)}>", arrays)
        case DoubleRounding(significands=significands, shifts=shifts):
            return Code("octet::DoubleRounding", (significands.astype(np.int32), shifts.astype(np.int32)))
        case Words(rounding=rounding, zero_point=zero_point, low=low, high=high):
            return Code(_named(requantization, zero_point, low, high), requantization_code(rounding).arrays)
        case FusedScale(exceptions=exceptions, mirrored=mirrored):
            return Code(_named(requantization, len(exceptions), mirrored), arrays)
    raise Declined(f"no kernel computes {type(requantization).__name__} on a GPU")


def addition_code(addition: Addition | None) -> str:
    """Returns the C++ type of an epilogue's addition, or the type for none. Raises the errors of `sum_code`."""
    return "octet::NoAddition" if addition is None else f"octet::WithAddition<{sum_code(addition)}>"


def sum_code(addition: Addition) -> str:
    """Returns the C++ type of an addition.

    Raises:
        Declined: `source` has no type for this formula.
    """
    match addition:
        case SharedShiftSum() | FloatSum():
            return _named(addition)
        case ScaledAddition(residual_is_first=first):
            return _named(addition, first)
        case FixedPointSum(subtracts=subtracts):
            return _named(addition, subtracts)
        case FusedSum(bias=bias, residual_last=last):
            return _named(addition, bias, last)
    raise Declined(f"no kernel computes {type(addition).__name__} on a GPU")


def arithmetic_code(arithmetic: Arithmetic) -> Code:
    """Returns the C++ type of an elementwise operator, and its arrays.

    Raises:
        Declined: `source` has no type for this formula.
    """
    match arithmetic:
        case Sum(addition=addition):
            return Code(f"octet::Sum<{sum_code(addition)}>")
        case Product(requantization=requantization):
            scaling = requantization_code(requantization)
            return Code(f"octet::Product<{scaling.type}>", scaling.arrays)
        case RealProduct():
            return Code(_named(arithmetic), arithmetic.arrays)
        case Slope(above=above, below=below):
            return Code(_named(arithmetic), _arrays(above, below))
        case Square(scalings=scalings, left_shift=left_shift):
            return Code(_named(arithmetic, left_shift), _arrays(*scalings))
    raise Declined(f"no kernel computes {type(arithmetic).__name__} on a GPU")


def _arrays(*scalings: Requantization) -> tuple[Array, ...]:
    return tuple(array for scaling in scalings for array in requantization_code(scaling).arrays)


def _named(formula: object, *arguments: int) -> str:
    name = f"octet::{type(formula).__name__}"
    return f"{name}<{', '.join(map(_literal, arguments))}>" if arguments else name


def _literal(value: int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
