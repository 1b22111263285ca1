"""The conversion rule of one builtin operator, and the sets of types that rules name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm import relax

from service.compiler.importers.tflite.complex import Complex
from service.compiler.importers.tflite.node import Node

STORAGES = frozenset({"int8", "uint8"})
WIDE = STORAGES | {"int16"}  # 16x8 quantization: 16-bit activations, 8-bit weights
INT8 = frozenset({"int8"})  # the types of operators for which LiteRT has no uint8 kernel
# The types of operators that only copy elements or do not compute with real values.
ANY = STORAGES | {"int16", "int32", "int64", "float16", "float32", "bool"}
INTEGERS = frozenset({"int32", "int64"})
SIGNED = INT8 | {"int16"}
NUMBERS = WIDE | INTEGERS
BOOL = frozenset({"bool"})
FLOAT = frozenset({"float32"})
ANY_NUMBER = 1 << 16
Converted: TypeAlias = relax.Expr | Complex | list[relax.Expr]  # the output of an operator, or its outputs


@dataclass(frozen=True)
class Rule:
    """The conversion rule of one builtin operator.

    Attributes:
        convert: emits the operator's calls. Returns its output, or a list if there are several.
        arity: smallest and largest number of inputs.
        outputs: largest number of outputs.
        real: converts the operator for float32 activations. None if float32 activations are not supported, or if
            `convert` supports them too.
        hybrid: converts the operator for float32 activations and int8 weights.
        sparse: true if the operator can read sparse constants.
        blocks: true if the operator can read constants that are quantized in blocks.
        skips_empty: true if the operator's activations may be empty.
        activations: how many inputs from `first` on are activations; None means all of them. The dtype of these inputs
            must be one of `reads`.
        reads, writes: dtypes that the activations and the output may have.
    """

    convert: Callable[[Node], Converted]
    arity: tuple[int, int]
    activations: int | None = 1
    first: int = 0
    reads: frozenset[str] = STORAGES
    writes: frozenset[str] = STORAGES
    outputs: int = 1
    real: Callable[[Node], relax.Expr] | None = None
    hybrid: Callable[[Node], relax.Expr] | None = None
    sparse: bool = False
    blocks: bool = False
    skips_empty: bool = False

    def reads_dtype(self, dtype: str) -> bool:
        return dtype in self.reads or (dtype == "float32" and self.real is not None)

    def converter(self, dtypes: Sequence[str]) -> Callable[[Node], Converted]:
        """Returns the converter for inputs of `dtypes`. The dtype of the first activation decides whether the operator
        computes with real values.
        """
        activations = self.activations_of(tuple(range(len(dtypes))))
        is_real = bool(activations) and dtypes[activations[0]] == "float32"
        if is_real and self.hybrid is not None and dtypes[1] == "int8":
            return self.hybrid
        return self.real if is_real and self.real is not None else self.convert

    def writes_dtype(self, dtype: str) -> bool:
        return dtype in self.writes or (dtype == "float32" and self.real is not None)

    def activations_of(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Returns those inputs of an operator that are activations."""
        return inputs[self.first : None if self.activations is None else self.first + self.activations]


def moving(
    convert: Callable[[Node], Converted],
    arity: tuple[int, int],
    activations: int | None = 1,
    first: int = 0,
    outputs: int = 1,
) -> Rule:
    """Returns the rule of an operator that moves elements of any dtype, or none."""
    return Rule(convert, arity, activations, first, ANY, ANY, outputs, skips_empty=True)


def wide(
    convert: Callable[[Node], Converted],
    arity: tuple[int, int],
    activations: int | None = 1,
    first: int = 0,
) -> Rule:
    """Returns the rule of an operator that also has a kernel for 16-bit activations."""
    return Rule(convert, arity, activations, first, WIDE, WIDE)


def signed(convert: Callable[[Node], relax.Expr]) -> Rule:
    """Returns the rule of a function of one value that has kernels for int8 and int16, but not for uint8."""
    return Rule(convert, (1, 1), reads=SIGNED, writes=SIGNED)
