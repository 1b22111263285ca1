"""A node during its conversion: checked access to its operands, and errors that name the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.mxnet.scales import max_abs
from service.compiler.importers.mxnet.symbol import Entry, SymbolNode
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array


@dataclass(frozen=True)
class PendingSum:
    """An int32 sum of two 8-bit tensors that has not been requantized yet, and the types of both tensors."""

    lhs: relax.Expr
    rhs: relax.Expr
    lhs_type: QuantizedType
    rhs_type: QuantizedType


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value that the model computes, in MXNet's layout: images are `[N, C, H, W]`."""

    expr: relax.Expr
    dtype: str
    shape: tuple[int, ...]
    pending: PendingSum | None = None


# The value of a node's output: a computed tensor or a constant. Constants are parameters and the bounds of calibrated
# ranges.
Value = Tensor | Array


class Node(base.Node):
    """An operator during its conversion."""

    def __init__(self, node: SymbolNode, values: Mapping[Entry, Value], builder: relax.BlockBuilder) -> None:
        self.node, self.attributes = node, node.attributes
        self._values = values
        super().__init__(builder, node.label, node.name, node.name)

    # -- operands

    def count(self, number: int) -> None:
        if len(self.node.inputs) != number:
            self.malformed(f"has {len(self.node.inputs)} inputs, not {number}")

    def tensor(self, index: int, *dtypes: str) -> Tensor:
        """Returns a computed input, whose dtype must be one of `dtypes`."""
        value = self._value(index)
        if not isinstance(value, Tensor):
            self.unsupported(f"has a constant as input {index}, where a computed tensor is needed")
        if value.dtype not in dtypes:
            self.unsupported(f"has {value.dtype} as input {index}, not {' or '.join(dtypes)}")
        return value

    def array(self, index: int, dtype: str, rank: int) -> Array:
        """Returns an input that must be a parameter."""
        value = self._value(index)
        if isinstance(value, Tensor):
            self.unsupported(f"has a computed input {index}, which must be a parameter")
        if value.dtype.name != dtype or value.ndim != rank:
            self.unsupported(
                f"has {value.dtype.name} {list(value.shape)} as input {index}, not {dtype} of {rank} dimensions"
            )
        if dtype == "float32" and not np.isfinite(value).all():
            self.unsupported(f"has infinite or NaN values in its parameter, input {index}")
        return value

    def real(self, index: int) -> np.float32:
        """Returns an input that must be one float, such as a bound of a range."""
        value = self._value(index)
        if isinstance(value, Tensor):
            self.unsupported(
                "computes the range of a tensor at run time, which cannot be compiled; calibrate the model"
            )
        if value.dtype != np.float32 or value.size != 1:
            self.malformed(
                f"has {value.dtype.name} {list(value.shape)} as the bound of a range, input {index}, not one float32"
            )
        return np.float32(value.reshape(-1)[0])

    def range(self, index: int) -> tuple[np.float32, np.float32]:
        """Returns the smallest and the largest real value of a range, which are the inputs `index` and `index + 1`."""
        return self.checked_range(self.real(index), self.real(index + 1), self._name_of(index))

    def is_of_zeros(self, index: int) -> bool:
        """Returns true if the range in the inputs `index` and `index + 1` is 0 to 0, as for a constant of zeros."""
        return bool(self.real(index) == 0 and self.real(index + 1) == 0)

    def _name_of(self, index: int) -> str:
        """Returns the text with which error messages locate a range."""
        return f"  in input {index}"

    def calibrated(self) -> tuple[np.float32, np.float32] | None:
        """Returns the calibrated range of the operator's output, or None if it has none."""
        low, high = (self.attributes.real(f"{end}_calib_range") for end in ("min", "max"))
        return None if low is None or high is None else self.checked_range(np.float32(low), np.float32(high))

    def checked_range(self, low: np.float32, high: np.float32, where: str = "") -> tuple[np.float32, np.float32]:
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            self.malformed(f"has the invalid range {low} to {high}{where}")
        # A float32 scale and its reciprocal must be normal numbers, and so must products of two of them.
        if not 1e-12 < max_abs(low, high) < 1e12:
            self.unsupported(f"has the range {low} to {high}{where}, which cannot be quantized")
        return low, high

    def _value(self, index: int) -> Value:
        if index >= len(self.node.inputs):
            self.malformed(f"has only {len(self.node.inputs)} inputs")
        entry = self.node.inputs[index]
        if entry not in self._values:
            self.malformed(f"reads output {entry[1]} of node {entry[0]}, which has fewer outputs")
        return self._values[entry]

    # -- results

    def result(self, expr: relax.Var) -> Tensor:
        """Returns the result of an expression, which is in MXNet's layout, as a tensor."""
        return Tensor(expr, str(expr.ty.dtype), shape_of(expr))


def edges(low: np.float32, high: np.float32) -> tuple[Array, Array]:
    """Returns the two bounds of a range as outputs."""
    return np.array([low], np.float32), np.array([high], np.float32)
