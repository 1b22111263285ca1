"""Expresses conversions of elements as types of `source/conversion.cuh`, and the numbers that these read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.conversion import Dequantization, Quantization
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.core.models.arrays import Array


@dataclass(frozen=True)
class Conversion:
    """A conversion of elements, as a C++ type.

    Attributes:
        type: the name of the C++ type, with its template arguments.
        numbers: the arrays that the type is constructed from.
        source, destination: the dtypes of the kernel's parameters.
    """

    type: str
    numbers: tuple[Array, ...]
    source: str
    destination: str


def as_bytes(dtype: str) -> Conversion:
    """Returns the conversion between 8-bit elements of `dtype` and stored bytes, in either direction.

    Raises:
        Declined: the elements do not have 8 bits.
    """
    if dtype not in BIAS:
        raise Declined(f"{dtype} is not stored in 8 bits")
    return Conversion(f"octet::Bytes<{_literal(BIAS[dtype] != 0)}>", (), "uint8", "uint8")


def by_table(values: Array) -> Conversion:
    """Returns the conversion by a lookup table `[256] uint8`, from stored values to stored values."""
    return Conversion("octet::Table", (values,), "uint8", "uint8")


def quantizing(quantization: Quantization) -> Conversion:
    ways = (
        quantization.divides,
        quantization.first_zero_point is not None,
        quantization.away,
        quantization.nan_is_low,
        quantization.limit is not None,
    )
    floats = [quantization.factor, quantization.least, quantization.largest, quantization.first_zero_point or 0]
    ends = [quantization.zero_point, quantization.low, quantization.high]
    limits = [] if quantization.limit is None else [quantization.limit, quantization.overflow]
    real, beyond = (np.array(values, np.float32).view(np.int32) for values in (floats, limits))
    numbers = np.concatenate([real, np.array(ends, np.int32), beyond])
    return Conversion(f"octet::Quantization<{', '.join(map(_literal, ways))}>", (numbers,), "float32", "uint8")


def dequantizing(dequantization: Dequantization) -> Conversion:
    return Conversion("octet::Dequantization", (dequantization.numbers,), "uint8", "float32")


def _literal(value: bool) -> str:
    return str(value).lower()
