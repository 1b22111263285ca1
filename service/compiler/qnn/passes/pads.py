"""Move pads: pads stored values instead of real ones, and permutes before padding.

If a tensor is padded between two conversions of one type, its stored form is padded instead. A tensor that is padded
and then permuted is permuted first, so that images are converted to the kernels' layout without their padding.

In networks that were trained with TensorFlow's "same" padding, exporters write the padding as a separate operator, and
quantizers put a dequantization before it and a quantization after it. On stored values, it becomes the halo of an image
and costs nothing.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change: stored values are padded only if quantizing the dequantized values restores every
stored value.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import all_values
from service.compiler.qnn.operation import Operation

_STORAGES = ("int8", "uint8")


def move_pads(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with stored values padded, and the names of the padded tensors."""
    made: dict[relax.Var, relax.Expr] = {}
    operations: dict[relax.Var, Operation] = {}
    moved: dict[relax.Call, relax.Var] = {}
    done: list[str] = []
    uses = graph.uses_of(graph.main_of(module))
    for var, value, operation in graph.operations(graph.main_of(module)):
        made[var] = value
        if _is_permutation(value) and uses[value.args[0]] == 1:
            pad = _constant_pad(value.args[0], made)
            if pad is not None:
                moved[pad] = value.args[0]
                done.append(str(var.name))
        if operation is not None:
            operations[var] = operation
            pad = _padding(operation, made)
            source = operations.get(pad.args[0]) if pad is not None else None
            if source is not None and source.name == "qnn.dequantize" and _gives_back(mode, source, operation):
                moved[value] = var
                done.append(str(var.name))
    rewriting = _Rewriting(mode, made, operations, moved)
    return (graph.rewrite(module, rewriting.rewrite) if moved else module), done


class _Rewriting:
    def __init__(
        self,
        mode: Mode,
        made: dict[relax.Var, relax.Expr],
        operations: dict[relax.Var, Operation],
        moved: dict[relax.Call, relax.Var],
    ) -> None:
        self._mode, self._made, self._operations, self._moved = mode, made, operations, moved
        self._new: dict[relax.Var, relax.Expr] = {}  # old variable -> new expression, for variables that were read
        # result -> padded operand, widths, fill value
        self._padded: dict[relax.Var, tuple[relax.Expr, list[int], float]] = {}

    def rewrite(
        self, builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        self._new.update((old, new) for old, new in zip(call.args, args, strict=True) if isinstance(old, relax.Var))
        if call in self._moved and operation is None:
            widths = [int(width) for width in call.attrs.pad_width]
            self._padded[self._moved[call]] = self._new[call.args[0]], widths, float(call.attrs.pad_value)
        elif call in self._moved and operation is not None:
            pad = self._made[call.args[0]]
            stored = self._new[self._operations[pad.args[0]].call.args[0]]
            value = np.full(1, float(pad.attrs.pad_value), np.float32)
            fill = float(self._mode.formula(operation).evaluate(operation, value)[0])
            widths = [int(width) for width in pad.attrs.pad_width]
            self._padded[self._moved[call]] = stored, widths, fill
            return relax.op.nn.pad(stored, widths, pad_value=fill)
        permuted = _is_permutation(call) and call.args[0] in self._padded
        return self._permuted(builder, call) if permuted else graph.with_args(call, args)

    def _permuted(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Permutes first and pads afterwards, so that images are converted to the kernels' layout without their
        padding.
        """
        stored, widths, fill = self._padded[call.args[0]]
        axes = [int(axis) for axis in call.attrs.axes or range(len(widths) // 2)[::-1]]
        sides = [width for axis in axes for width in widths[2 * axis : 2 * axis + 2]]
        return relax.op.nn.pad(builder.emit(relax.op.permute_dims(stored, axes)), sides, pad_value=fill)


def _padding(operation: Operation, made: dict[relax.Var, relax.Expr]) -> relax.Call | None:
    """If `operation` is a `qnn.quantize` to one 8-bit type that reads a computed tensor padded with a constant, returns
    that padding.
    """
    if operation.name != "qnn.quantize" or not operation.quantized("out_type").is_per_tensor:
        return None
    if operation.quantized("out_type").dtype not in _STORAGES:
        return None
    return _constant_pad(operation.call.args[0], made)


def _is_permutation(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.permute_dims"


def _constant_pad(expr: relax.Expr, made: dict[relax.Var, relax.Expr]) -> relax.Call | None:
    """If `expr` is a computed tensor padded with a constant, returns the call that pads it."""
    pad = made.get(expr) if isinstance(expr, relax.Var) else None
    if not isinstance(pad, relax.Call) or getattr(pad.op, "name", "") != "relax.nn.pad":
        return None
    return pad if str(pad.attrs.pad_mode) == "constant" and isinstance(pad.args[0], relax.Var) else None


def _gives_back(mode: Mode, dequantize: Operation, quantize: Operation) -> bool:
    """Returns true if quantizing the dequantized values restores every stored value."""
    kind = quantize.quantized("out_type")
    if dequantize.quantized("in_type") != kind:
        return False
    stored = all_values(kind)
    real = mode.formula(dequantize).evaluate(dequantize, stored)
    return bool(np.array_equal(mode.formula(quantize).evaluate(quantize, real), stored))
