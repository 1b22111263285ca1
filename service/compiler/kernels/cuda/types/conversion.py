"""Expresses conversions of elements as types of CUDA C++, and the numbers that these read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.cuda.printer import Member, Text, struct
from service.compiler.kernels.cuda.text import TYPES
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.compiler.qnn.expressions.conversions import Conversion, Quantization
from service.core.models.arrays import Array


@dataclass(frozen=True)
class ElementCode:
    """A conversion of elements, as a C++ type.

    Attributes:
        type: the name of the C++ type, with its template arguments.
        definition: the text that defines the type, if the headers do not.
        numbers: the arrays that the type is constructed from.
        source, destination: the dtypes of the kernel's parameters.
    """

    type: str
    definition: str
    numbers: tuple[Array, ...]
    source: str
    destination: str


def as_bytes(dtype: str) -> ElementCode:
    """Returns the conversion between 8-bit elements of `dtype` and stored bytes, in either direction.

    Raises:
        Declined: the elements do not have 8 bits.
    """
    if dtype not in BIAS:
        raise Declined(f"{dtype} is not stored in 8 bits")
    return ElementCode(f"octet::Bytes<{str(BIAS[dtype] != 0).lower()}>", "", (), "uint8", "uint8")


def by_table(values: Array) -> ElementCode:
    """Returns the conversion by a lookup table `[256] uint8`, from stored values to stored values."""
    return ElementCode("octet::Table", "", (values,), "uint8", "uint8")


def converted(conversion: Conversion) -> ElementCode:
    """Returns the type of a conversion between float32 and stored bytes."""
    source, destination = ("float32", "uint8") if isinstance(conversion, Quantization) else ("uint8", "float32")
    numbers = np.array(conversion.numbers, np.int32)
    names = [Text(f"n{index}") for index in range(len(numbers))]
    given = ", ".join(f"n{index}(numbers[{index}])" for index in range(len(numbers)))
    types = [TYPES[dtype].removeprefix("octet::") for dtype in (source, destination)]
    lines = [
        f"using From = {types[0]};",
        f"using To = {types[1]};",
        *(f"const i32 {name.text};" for name in names),
        f"__device__ Conversion(const i32* numbers) : {given} {{}}",
    ]
    value = Text("value", source)
    apply = Member(
        "To apply(From value) const", lambda ops: ops.cast(conversion.express(ops, value, names), destination)
    )
    return ElementCode("octet::Conversion", struct("Conversion", lines, apply), (numbers,), source, destination)
