"""Epilogues as the types of `source/requantize.cuh` and `source/addition.cuh`, and the arrays that they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.kernel import Array, Declined
from service.compiler.kernels.simd.addition import Addition, FixedPointSum, ScaledAddition, SharedShiftSum
from service.compiler.kernels.simd.onnxruntime_epilogues import FusedSum
from service.compiler.kernels.simd.requantization import (
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
from service.compiler.kernels.simd.torch_epilogues import BiasedScale, DequantizedScale, FloatSum


@dataclass(frozen=True)
class Code:
    """A type of the sources.

    Attributes:
        type: its C++ name, with its arguments.
        arrays: what it is made of: one value for each channel.
    """

    type: str
    arrays: tuple[Array, ...] = ()

    def made_of(self, names: Sequence[str]) -> str:
        """The expression that makes one of its arrays' names."""
        return f"{self.type}{{{', '.join(names)}}}"


def requantization_code(requantization: Requantization) -> Code:
    """
    Raises:
        Declined: the sources have no such formula.
    """
    arrays = requantization.arrays
    match requantization:
        case Kept() | FloatValues() | DequantizedScale() | SingleRounding():
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
    raise Declined(f"no kernel computes {type(requantization).__name__} on a card")


def addition_code(addition: Addition | None) -> str:
    """
    Raises:
        Declined: the sources have no such formula.
    """
    match addition:
        case None:
            return "octet::NoAddition"
        case SharedShiftSum() | FloatSum():
            sum_ = _named(addition)
        case ScaledAddition(residual_is_first=first):
            sum_ = _named(addition, first)
        case FixedPointSum(subtracts=subtracts):
            sum_ = _named(addition, subtracts)
        case FusedSum(bias=bias, residual_last=last):
            sum_ = _named(addition, bias, last)
        case _:
            raise Declined(f"no kernel computes {type(addition).__name__} on a card")
    return f"octet::WithAddition<{sum_}>"


def _named(formula: object, *arguments: int) -> str:
    name = f"octet::{type(formula).__name__}"
    return f"{name}<{', '.join(map(_literal, arguments))}>" if arguments else name


def _literal(value: int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
