"""A node during its conversion: checked access to its operands and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.mxnet.scales import Range, max_abs, steps_per_unit, type_of
from service.compiler.importers.mxnet.symbol import Entry, SymbolNode
from service.compiler.importers.onnx.standard import Standard
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

BYTES = ("int8", "uint8")


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value that the model computes, in MXNet's layout: images are `[N, C, H, W]`.

    Attributes:
        addends: of an int32 sum of two 8-bit tensors that has not been requantized yet: both tensors, and their types.
    """

    expr: relax.Expr
    addends: tuple[relax.Expr, relax.Expr, QuantizedType, QuantizedType] | None = None

    @property
    def dtype(self) -> str:
        return "int32" if self.addends is not None else str(self.expr.ty.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.expr)


@dataclass(frozen=True, eq=False)
class Stored(Tensor):
    """An 8-bit operand with the range of its real values."""

    range: Range = (np.float32(0), np.float32(0))

    @property
    def steps(self) -> np.float32:
        return steps_per_unit(self.dtype, *self.range)

    @property
    def type(self) -> QuantizedType:
        return type_of(self.dtype, self.steps)


# The value of a node's output: a computed tensor or a constant. Constants are parameters and the bounds of calibrated
# ranges.
Value = Tensor | Array


class Node(base.Node):
    """An operator during its conversion."""

    def __init__(
        self, node: SymbolNode, values: Mapping[Entry, Value], builder: relax.BlockBuilder, standard: Standard
    ) -> None:
        self.node, self.attributes = node, node.attributes
        self._values, self._standard = values, standard
        super().__init__(builder, node.label, node.name, node.name)

    # -- operands

    def count(self, number: int) -> None:
        self.require(len(self.node.inputs) == number, f"has {len(self.node.inputs)} inputs, not {number}")

    def tensor(self, index: int, *dtypes: str) -> Tensor:
        """Returns a computed input, whose dtype must be one of `dtypes`."""
        value = self._value(index)
        if not isinstance(value, Tensor):
            self.unsupported(f"has a constant as input {index}, where a computed tensor is needed")
        fits = value.dtype in dtypes
        self.require_supported(fits, f"has {value.dtype} as input {index}, not {' or '.join(dtypes)}")
        return value

    def real(self, index: int) -> relax.Expr | Array:
        """Returns a float32 input: an expression, or the elements of a parameter."""
        value = self._value(index)
        if not isinstance(value, Tensor):
            self.require_supported(value.dtype == np.float32, f"has {value.dtype.name} as input {index}, not float32")
            return value
        return self.tensor(index, "float32").expr

    def stored(self, index: int, limits: int) -> Stored:
        """Returns an 8-bit input. The inputs from `limits` on are its range."""
        return Stored(self.tensor(index, *BYTES).expr, range=self.range(limits))

    def array(self, index: int, dtype: str, rank: int) -> Array:
        """Returns an input that must be a parameter."""
        value = self._value(index)
        if isinstance(value, Tensor):
            self.unsupported(f"has a computed input {index}, which must be a parameter")
        found = f"{value.dtype.name} {list(value.shape)}"
        fits = value.dtype.name == dtype and value.ndim == rank
        self.require_supported(fits, f"has {found} as input {index}, not {dtype} of {rank} dimensions")
        is_finite = dtype != "float32" or bool(np.isfinite(value).all())
        self.require_supported(is_finite, f"has infinite or NaN values in its parameter, input {index}")
        return value

    def bound(self, index: int) -> np.float32:
        """Returns an input that must be one float: a bound of a range."""
        value = self._value(index)
        if isinstance(value, Tensor):
            self.unsupported(
                "computes the range of a tensor at run time, which cannot be compiled; calibrate the model"
            )
        found = f"{value.dtype.name} {list(value.shape)}"
        fits = value.dtype == np.float32 and value.size == 1
        self.require(fits, f"has {found} as the bound of a range, input {index}, not one float32")
        return np.float32(value.reshape(-1)[0])

    def range(self, index: int) -> Range:
        """Returns the smallest and the largest real value of a range, which are the inputs `index` and `index + 1`."""
        return self._checked_range(self.bound(index), self.bound(index + 1), f" in input {index}")

    def calibrated(self) -> Range | None:
        """Returns the calibrated range of the operator's output, or None if it has none."""
        low, high = (self.attributes.real(f"{end}_calib_range") for end in ("min", "max"))
        return None if low is None or high is None else self._checked_range(np.float32(low), np.float32(high))

    def _checked_range(self, low: np.float32, high: np.float32, where: str = "") -> Range:
        is_valid = bool(np.isfinite(low) and np.isfinite(high) and low <= high)
        self.require(is_valid, f"has the invalid range {low} to {high}{where}")
        # A float32 scale and its reciprocal must be normal numbers, and so must products of two of them.
        fits = bool(1e-12 < max_abs(low, high) < 1e12)
        self.require_supported(fits, f"has the range {low} to {high}{where}, which cannot be quantized")
        return low, high

    def _value(self, index: int) -> Value:
        self.require(index < len(self.node.inputs), f"has only {len(self.node.inputs)} inputs")
        output = self.node.inputs[index]
        self.require(output in self._values, f"reads output {output[1]} of node {output[0]}, which has fewer outputs")
        return self._values[output]

    def extents(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape) if isinstance(x, np.ndarray) else super().extents(x)

    # -- attributes

    def choice(self, name: str, default: str, *choices: str, of: Attributes | None = None) -> str:
        """Returns an attribute of the node, or of a part of it, which must be one of `choices`."""
        value = (of or self.attributes).text(name, default)
        what = f"has the {name} {value!a:.20}; only {', '.join(choices)} can be compiled"
        self.require_supported(value in choices, what)
        return value

    # -- results

    def standard(
        self, op_type: str, *operands: relax.Expr | Array | None, results: int = 1, **attributes: Any
    ) -> list[Value]:
        """Converts an operator of real values by the rule of ONNX's operator `op_type`, and returns its outputs."""
        made = self._standard.convert(self.label, op_type, operands, attributes, results, self.node.name)
        return [each if isinstance(each, np.ndarray) else Tensor(each) for each in made]

    def step(self, op_type: str, *operands: relax.Expr | Array | None, **attributes: Any) -> relax.Expr | Array:
        """Returns the only output of `standard` as an operand of a further operator."""
        (made,) = self.standard(op_type, *operands, **attributes)
        return made.expr if isinstance(made, Tensor) else made

    def outputs_of(self, made: relax.Expr | Array) -> list[Value]:
        """Returns the result of `step` as the output of the operator."""
        return [made if isinstance(made, np.ndarray) else Tensor(made)]

    def outputs(self, made: relax.Expr, limits: Range | None = None, part: str = "") -> list[Value]:
        """Binds the result `made`. Returns it with its range, if it has one, as the outputs of the operator."""
        return [Tensor(self.emit(made, part)), *edges(limits)]


def edges(limits: Range | None) -> list[Array]:
    """Returns the two bounds of a range as outputs."""
    return [] if limits is None else [np.array([end], np.float32) for end in limits]
