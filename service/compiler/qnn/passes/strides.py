"""Move strides: does not compute the pixels of an image that all of its readers skip.

A 1x1 convolution with a stride of two reads every second row and column. If every reader of an image does so, the
operator that computes the image can skip the other pixels. A window takes over the stride (Intel 2018, figure 9: in the
last blocks of a stage of ResNet-50, the 3x3 convolution and the 1x1 convolution after it cost a quarter). A sum takes
over the stride if one of its operands does; a 1x1 pooling selects the pixels of the other operand.

Every second window of a layer of stride s is a window of the layer with stride 2s: window number i begins at the same
element, and ((n - k) // s) // 2 = (n - k) // 2s, so that there are as many.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. If all readers of a tensor skip pixels, these pixels are not computed. The same
    applies to the tensors before it, back to the nearest one that some reader needs whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.unary import FUNCTIONS
from service.compiler.qnn.types import STORAGE_RANGES

Strides = tuple[int, int]
_ALL = (1, 1)
_WINDOWS = ("qnn.conv2d", "qnn.max_pool2d", "qnn.avg_pool2d")
_ONE_OPERAND = ("qnn.quantize", "qnn.dequantize", "qnn.requantize", "qnn.table", *(f"qnn.{name}" for name in FUNCTIONS))
_TWO_OPERANDS = ("qnn.add", "qnn.mul")


def move_strides(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with strides applied as early as possible, and the names of the layers whose strides
    increased.
    """
    return _Mover(graph.main_of(module)).run(module)


class _Mover:
    """Finds the strides of each image, and rewrites the model with them.

    Attributes:
        wanted: image -> the largest strides that its readers allow.
        made: image -> the strides at which it is computed: the wanted ones, or (1, 1).
    """

    def __init__(self, function: relax.Function) -> None:
        self.found = list(graph.operations(function))
        self.vars = {value: var for var, value, _ in self.found if isinstance(value, relax.Call)}
        self.wanted: dict[relax.Var, Strides] = {}
        for result in graph.results_of(function):
            self._want(result, _ALL)
        for var, value, operation in reversed(self.found):
            own = self.wanted.get(var, _ALL)
            for operand in _operands(value):
                self._want(operand, _needed(operation, own, operand))
        self.made: dict[relax.Expr, Strides] = {}
        for var, _, operation in self.found:
            self.made[var] = self._computed_strides(var, operation)

    def _want(self, expr: relax.Expr, strides: Strides) -> None:
        if isinstance(expr, relax.Var):
            before = self.wanted.get(expr, (0, 0))
            self.wanted[expr] = math.gcd(before[0], strides[0]), math.gcd(before[1], strides[1])

    def _computed_strides(self, var: relax.Var, operation: graph.Found) -> Strides:
        if operation is None or len(graph.shape_of(operation.call)) != 4:
            return _ALL
        operands = _operands(operation.call)
        if operation.name in _ONE_OPERAND:
            return self.made.get(operands[0], _ALL)  # (1, 1) if the types of the operator count pixels
        thinned = any(self.made.get(operand, _ALL) != _ALL for operand in operands)
        if operation.name in _WINDOWS or (thinned and _joins(operation)):
            return self.wanted.get(var, _ALL)
        return _ALL

    def run(self, module: tvm.IRModule) -> tuple[tvm.IRModule, list[str]]:
        moved = [
            str(var.name)
            for var, _, operation in self.found
            if operation is not None and operation.name in _WINDOWS and self.made[var] != _ALL
        ]
        return (graph.rewrite(module, self._rewrite) if moved else module), moved

    def _rewrite(
        self, builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is None:
            return graph.with_args(call, args)
        own = self.made[self.vars[call]]
        if operation.name in _WINDOWS:
            return self._window(operation, own, args)
        if own == _ALL or operation.name in _ONE_OPERAND:
            return graph.with_args(call, args)
        thinner = self._thinner(builder, operation, own)
        if isinstance(call.args[0], relax.Tuple):
            parts = zip(call.args[0].fields, args[0].fields, strict=True)
            return graph.with_args(call, [relax.Tuple([thinner(*pair, index) for index, pair in enumerate(parts)])])
        return graph.with_args(
            call, [thinner(*pair, index) for index, pair in enumerate(zip(call.args, args, strict=True))]
        )

    def _window(self, operation: Operation, own: Strides, args: list[relax.Expr]) -> relax.Expr:
        """Returns the layer with the strides of its readers included and the strides of its source removed."""
        of_source = self.made.get(operation.call.args[0], _ALL)
        strides = _divided(_product(operation.ints("strides", 2, 1), own), of_source)
        if operation.name == "qnn.max_pool2d" and strides == _ALL and _skips(operation) and _keeps(operation):
            return args[0]
        return ops.with_operands(operation.call, *args, strides=strides)

    def _thinner(
        self, builder: relax.BlockBuilder, operation: Operation, own: Strides
    ) -> Callable[[relax.Expr, relax.Expr, int], relax.Expr]:
        """Returns a function that takes an operand (old and new) and its index, and returns the operand with only the
        pixels that are read.
        """

        def thinned(old: relax.Expr, new: relax.Expr, index: int) -> relax.Expr:
            if not _repeats_no_pixel(operation, old):
                return new
            rest = _divided(own, self.made.get(old, _ALL))
            value = value_of(new)
            if value is not None:
                return relax.const(np.ascontiguousarray(value[..., :: rest[0], :: rest[1], :]))
            if rest == _ALL:
                return new
            kind = _type_of(operation, index)
            return graph.emit(builder, ops.max_pool2d(new, kind, kind, pool_size=(1, 1), strides=rest), new.name)

        return thinned


def _operands(value: relax.Expr) -> list[relax.Expr]:
    args = list(value.args) if isinstance(value, relax.Call) else [value]
    return [part for arg in args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]


def _needed(operation: graph.Found, own: Strides, operand: relax.Expr) -> Strides:
    """Returns the distances between the pixels of an operand that are read if results are computed at the distances
    `own`.
    """
    if operation is None or len(graph.shape_of(operation.call)) != 4:
        return _ALL
    if operation.name in _WINDOWS:
        data = operand.same_as(operation.call.args[0])
        return _product(operation.ints("strides", 2, 1), own) if data and _skips(operation) else _ALL
    if operation.name in _ONE_OPERAND or _joins(operation):
        return own if _repeats_no_pixel(operation, operand) and not _counts_pixels(operation) else _ALL
    return _ALL


def _counts_pixels(operation: Operation) -> bool:
    """Returns true if a type of the operator has scales along rows or columns."""
    types = [operation.quantized(name) for name in operation.call.attrs.keys() if name.endswith("_type")]  # noqa: SIM118
    return any(each.axis not in (None, 0, 3) or each.blocks is not None for each in types)


def _joins(operation: Operation) -> bool:
    """Returns true if the operator combines several images pixel by pixel."""
    if operation.name == "qnn.concatenate":
        return operation.integer("axis") == 3
    return operation.name in _TWO_OPERANDS


def _skips(operation: Operation) -> bool:
    """Returns true if each window consists of one pixel."""
    if any(operation.ints("padding", 4, 0)) or operation.name == "qnn.avg_pool2d":
        return False
    if operation.name == "qnn.max_pool2d":
        return operation.ints("pool_size", 2, 1) == (1, 1)
    return graph.shape_of(operation.call.args[1])[1:3] == (1, 1)


def _keeps(operation: Operation) -> bool:
    """Returns true if a 1x1 pooling does not clamp any value."""
    kind, out = operation.per_tensor("in_type"), operation.per_tensor("out_type")
    return out == kind or (out.min, out.max) == STORAGE_RANGES[out.dtype]


def _repeats_no_pixel(operation: Operation, operand: relax.Expr) -> bool:
    return graph.shape_of(operand)[-3:-1] == graph.shape_of(operation.call)[1:3]


def _type_of(operation: Operation, index: int) -> Any:
    if operation.name == "qnn.concatenate":
        return operation.quantized_parts()[index]
    return operation.per_tensor(("lhs_type", "rhs_type")[index])


def _product(one: tuple[int, ...], other: Strides) -> Strides:
    return one[0] * other[0], one[1] * other[1]


def _divided(strides: Strides, by: Strides) -> Strides:
    return strides[0] // by[0], strides[1] // by[1]
