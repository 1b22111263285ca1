"""Prints the expressions of epilogues and of elementwise operators as types of CUDA C++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.cuda.printer import Member, Text, fields, struct, texts
from service.compiler.kernels.cuda.text import TYPES
from service.compiler.qnn.expressions.averages import Average
from service.compiler.qnn.expressions.pairs import Arithmetic
from service.core.models.arrays import Array

_SUM = Text("sum")
_COUNT = Text("count")


@dataclass(frozen=True)
class Code:
    """A C++ type.

    Attributes:
        type: the name of the type.
        definition: the text that defines it.
        arrays: the arrays that the type is constructed from. Each has one value for each channel, or a single value.
    """

    type: str
    definition: str
    arrays: tuple[Array, ...] = ()

    def made_of(self, names: Sequence[str]) -> str:
        """Returns the C++ expression that constructs the type from arrays with these names."""
        return f"{self.type}{{{', '.join(names)}}}"


def epilogue_code(epilogue: AnyEpilogue, *, reads_residual: bool) -> Code:
    """Returns the type that converts accumulators to values minus the output's zero point, not yet clamped.

    It reads the values of a channel once (`channel`), and is applied to accumulators of that channel.
    """
    arrays = epilogue.requantization.arrays
    values, loaded = fields(arrays, "a"), ", ".join(each.text for each in texts(arrays, "a#[number]"))
    lines = [
        *fields(arrays, "a", pointers=True),
        f"static constexpr bool kReadsResidual = {str(reads_residual).lower()};",
        "struct Channel {",
        *(f"  {line.removeprefix('const ')}" for line in values),
        "};",
        f"__device__ Channel channel(int number) const {{ return {{{loaded}}}; }}",
    ]
    numbers = [Text(f"parameters[{3 + index}]") for index in range(len(epilogue.numbers))]
    returned = TYPES[epilogue.element].removeprefix("octet::")
    head = f"static {returned} apply(i32 sum, const Channel& own, i32 residual, const i32* parameters)"
    residual = Text("residual") if reads_residual else None
    apply = Member(head, lambda ops: epilogue.express(ops, _SUM, texts(arrays, "own.a#"), residual, numbers))
    return Code("octet::Formula", struct("Formula", lines, apply), arrays)


def arithmetic_code(arithmetic: Arithmetic) -> Code:
    """Returns the type of an elementwise operator. Its results lack the output's zero point, and are not clamped."""
    arrays = arithmetic.arrays
    numbers = [Text(f"numbers[{index}]") for index in range(len(arithmetic.numbers))]
    operands = [Text("lhs"), Text("rhs")]
    apply = Member(
        "i32 apply(i32 lhs, i32 rhs, const i32* numbers) const",
        lambda ops: arithmetic.express(ops, operands, texts(arrays, "*a#"), numbers),
    )
    return Code("octet::Arithmetic", struct("Arithmetic", fields(arrays, "a", pointers=True), apply), arrays)


def average_code(average: Average) -> Code:
    """Returns the type that adds the bytes of a window, and computes the value to store, not yet clamped."""
    parameters = np.array(average.parameters, np.int32)
    numbers = [Text(f"p{index}") for index in range(len(parameters))]
    ordered, kind = average.dtype == "float32", "float" if average.dtype == "float32" else "i32"
    given = ", ".join(f"p{index}(parameters[{index}])" for index in range(len(parameters)))
    lines = [
        f"using Sum = {kind};",
        f"static constexpr bool kOrdered = {str(ordered).lower()};",
        *(f"const i32 {number.text};" for number in numbers),
        f"__device__ explicit Mean(const i32* parameters) : {given} {{}}",
        "template <int kByte>",
    ]
    total, byte = Text("sum", average.dtype), Text("static_cast<i32>(word >> (8 * kByte) & 0xffu)")
    if ordered:
        add = Member("float accumulate(float sum, u32 word) const", lambda ops: average.add(ops, total, byte, numbers))
    else:  # integers may be added in any order, so one instruction selects a byte and adds it
        add = Member("i32 accumulate(i32 sum, u32 word) const", lambda ops: Text("dot(word, 1u << (8 * kByte), sum)"))
    finish = Member(
        f"i32 finish({kind} sum, i32 count) const", lambda ops: average.express(ops, total, _COUNT, numbers)
    )
    return Code("octet::Mean", struct("Mean", lines, add, finish), (parameters,))
