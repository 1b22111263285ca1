"""Drop casts: removes a function of one stored value if the function changes nothing, or if the operator that produces
the value can compute the function as well.

- A dequantize followed by a quantize to the same type is removed. Operators that only move elements may be between
  them, and stay.
- A function that leaves every possible value of its operand unchanged is replaced by its operand.
- A clamp becomes the storage bounds of the operator before it, if that operator has no other reader. A shift of the
  zero point is treated in the same way, if the mode adds the zero point after the last rounding.

The pass derives none of these properties: it evaluates the mode's formula for every possible value of the operand.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.elementwise import FixedPointAdd, FixedPointMul, FloatMul, SharedShiftAdd
from service.compiler.qnn.numerics.formula import all_values
from service.compiler.qnn.numerics.scaling.requantize import FloatRequantize, OneRounding, TwoRoundings
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.unary import FUNCTIONS
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOVES = ("relax.reshape", "relax.permute_dims")
_FUNCTIONS = ("qnn.requantize", "qnn.table", *(f"qnn.{name}" for name in FUNCTIONS))
# Formulas that add the zero point of the output after the last rounding, and then clamp.
_ROUND_FIRST = (FixedPointAdd, FixedPointMul, FloatMul, FloatRequantize, OneRounding, SharedShiftAdd, TwoRoundings)
_CLAMPING = ("qnn.add", "qnn.mul", "qnn.requantize")


def drop_casts(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with fewer functions of one value, and the names of those that were removed."""
    casts = _Casts(graph.main_of(module), mode)
    return (graph.rewrite(module, casts.rewrite) if casts.found else module), casts.dropped


class _Casts:
    """Finds the functions of one value that can be dropped, and rewrites the model without them.

    Attributes:
        dropped: the names of the values that were removed so far.
    """

    def __init__(self, function: relax.Function, mode: Mode) -> None:
        self.mode, self._uses = mode, graph.uses_of(function)
        self.dropped: list[str] = []
        self._names: dict[relax.Call, str] = {}
        # variable -> the operation that computes it, except operations that were dropped
        self._makers: dict[relax.Var, Operation] = {}
        self._idle: set[relax.Call] = set()  # calls that are replaced by their operand
        self._clamped: dict[relax.Call, QuantizedType] = {}  # call -> its new output type
        self._restoring = False  # true if an operator may quantize a dequantized value
        # new variable -> the stored value that it was dequantized from, and that value's type
        self._reals: dict[relax.Expr, tuple[relax.Expr, QuantizedType]] = {}
        known: set[relax.Var] = set()  # old variables of dequantized values
        for var, value, operation in graph.operations(function):
            if not isinstance(value, relax.Call):
                continue
            self._names[value] = str(var.name)
            operand = value.args[0] if value.args else None
            if operation is None:
                known |= {var} if operand in known and _moves(value) else set()
                continue
            known |= {var} if operation.name == "qnn.dequantize" else set()
            self._restoring |= operation.name == "qnn.quantize" and operand in known
            self._judge(var, operation)

    @property
    def found(self) -> bool:
        return bool(self._idle) or self._restoring

    def _judge(self, var: relax.Var, operation: Operation) -> None:
        """Decides whether a function of one value is needed, given the operation that computes that value."""
        self._makers[var] = operation
        table = self._table(operation)
        if table is None:
            return
        operand = operation.call.args[0]
        maker, alone = self._makers.get(operand), self._uses[operand] == 1
        if (table[0] == table[1]).all() and _storage(operation, "in_type") == _storage(operation, "out_type"):
            self._idle.add(operation.call)
        elif maker is not None and maker.name in _CLAMPING and maker.quantized("out_type").is_per_tensor:
            kind, made = self._with(operation, maker, table), self._output_type(maker)
            if kind == made or (kind is not None and alone):
                self._idle.add(operation.call)
                self._clamped[maker.call] = kind
        if operation.call in self._idle:
            del self._makers[var]
            self._makers.update({var: maker} if alone and maker is not None else {})

    def _output_type(self, maker: Operation) -> QuantizedType:
        return self._clamped.get(maker.call) or maker.per_tensor("out_type")

    def _table(self, operation: Operation) -> Array | None:
        """Returns `[2, 256] int64`: every value of an 8-bit operand, and its result; None for other operators."""
        if operation.name not in _FUNCTIONS:
            return None
        kind = operation.quantized("in_type")
        is_of_one = kind.is_per_tensor and operation.quantized("out_type").is_per_tensor
        if kind.dtype not in ("int8", "uint8") or not is_of_one:
            return None
        values = all_values(kind)
        return np.stack([values.astype(np.int64), self.mode.formula(operation).evaluate(operation, values)])

    def _with(self, operation: Operation, maker: Operation, table: Array) -> QuantizedType | None:
        """Returns the output type with which `maker` also computes `operation`, or None if there is none."""
        made = self._output_type(maker)
        values, results = table[:, (made.min <= table[0]) & (table[0] <= made.max)]
        low, high = int(results.min()), int(results.max())
        rounds_first = isinstance(self.mode.formula(maker), _ROUND_FIRST)
        moves = np.unique(results - values).tolist() if rounds_first else [0]
        for move in sorted(moves, key=abs):
            if low < high and (np.clip(values + move, low, high) == results).all():
                storage = _storage(operation, "out_type")
                return _type_or_none(storage, made.scale, made.zero_point + move, low, high)
        return None

    def rewrite(
        self, builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is None:
            return self._move_stored(builder, call, args)
        if operation.name == "qnn.dequantize":
            real = graph.emit(builder, graph.with_args(call, args), self._names[call])
            self._reals[real] = args[0], operation.quantized("in_type")
            return real
        if call in self._idle:
            self.dropped.append(self._names[call])
            return args[0]
        if operation.name == "qnn.quantize" and args[0] in self._reals:
            stored, kind = self._reals[args[0]]
            if self._gives_back(operation, kind):
                self.dropped.append(self._names[call])
                return stored
        if call in self._clamped:
            return ops.with_operands(call, *args, out_type=self._clamped[call])
        return graph.with_args(call, args)

    def _move_stored(self, builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr]) -> relax.Expr:
        """Moves the stored integers instead of the real values that were dequantized from them."""
        moved = graph.with_args(call, args)
        stored, kind = self._reals.get(args[0], (None, None)) if args else (None, None)
        if not _moves(call) or stored is None or kind is None or not kind.is_per_tensor:
            return moved
        stored = graph.emit(builder, graph.with_args(call, [stored, *args[1:]]), f"{self._names[call]}_stored")
        result = graph.emit(builder, ops.dequantize(stored, kind), self._names[call])
        self._reals[result] = stored, kind
        return result

    def _gives_back(self, quantize: Operation, kind: QuantizedType) -> bool:
        """Returns true if `quantize` restores every dequantized value of `kind`."""
        exact = kind.dtype in ("int8", "uint8", "int16") and kind.is_per_tensor
        out_type = quantize.quantized("out_type")
        if not exact or kind.dtype != out_type.dtype or not out_type.is_per_tensor:
            return False
        values = all_values(kind)
        dequantize = Operation(ops.dequantize(relax.const(values), kind))
        real = self.mode.formula(dequantize).evaluate(dequantize, values)
        return bool((self.mode.formula(quantize).evaluate(quantize, real) == values).all())


def _moves(call: relax.Call) -> bool:
    return isinstance(call.op, tvm.ir.Op) and call.op.name in _MOVES


def _storage(operation: Operation, name: str) -> str:
    return operation.quantized(name).dtype


def _type_or_none(storage: str, scale: float, zero_point: int, low: int, high: int) -> QuantizedType | None:
    limits = np.iinfo(storage)
    if not limits.min <= zero_point <= limits.max:
        return None
    return QuantizedType(storage, (scale,), (zero_point,), storage_min=low, storage_max=high)
