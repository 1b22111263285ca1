"""The ONNX graph that is written.

A value of the module becomes a tensor of the graph, whose axes may be in a different order. Each operator requests its
operands in the order in which it computes, and records the order of its result. For example, a convolution of `[N, H,
W, C]` reads and writes `[N, C, H, W]`, and an elementwise operator keeps the order of its operands. So a permutation in
the module needs no operator. A Transpose is written only if two orders differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.names import printable, unique
from service.compiler.importers.onnx.file import encoding
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array
from service.quantize.file.document import Node

# For each axis of the tensor: the number of that axis in the module's value.
Order = tuple[int, ...]
CHANNELS_FIRST: Order = (0, 3, 1, 2)  # the order of the axes of [N, H, W, C]


class Graph:
    """The ONNX graph during its construction.

    Attributes:
        nodes: sorted, so that each comes after those whose outputs it reads.
        constants: the constants by name.
    """

    def __init__(self, inputs: Mapping[relax.Var, str], outputs: Mapping[relax.Var, str]) -> None:
        """`inputs` and `outputs` map each variable to its name."""
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self._ends = dict(outputs)
        self._used_names = {*inputs.values(), *outputs.values()}
        self._tensors: dict[relax.Var, dict[Order, str]] = {
            var: {identity(rank_of(var)): name} for var, name in inputs.items()
        }
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    # -- operands

    def order_of(self, *operands: relax.Expr) -> Order:
        """Returns the order that most of the computed `operands` have. All must have the same rank."""
        orders = [order for each in operands if isinstance(each, relax.Var) for order in [*self._tensors[each]][:1]]
        return max(orders, key=orders.count) if orders else identity(rank_of(operands[0]))

    def tensor(self, expr: relax.Expr, order: Order | None = None) -> str:
        """Returns the name of the tensor for a value, with its axes in `order` (by default, the order in the
        module).
        """
        order = identity(rank_of(expr)) if order is None else order
        data = value_of(expr)
        if data is not None:
            return self.constant(np.transpose(to_float32(data), order))
        tensors = self._tensors[expr]
        if order not in tensors:
            tensors[order] = self._reorder(expr, *next(iter(tensors.items())), order)
        return tensors[order]

    def aligned(self, expr: relax.Expr, order: Order) -> str:
        """Returns the name of a tensor for a value that broadcasts to the rank of `order`. The tensor's axes are in
        that order.
        """
        data, missing = value_of(expr), len(order) - rank_of(expr)
        if data is not None and data.size == 1:
            return self.constant(to_float32(data).reshape(()))
        if not missing or order == identity(len(order)):
            return self.tensor(expr, order if not missing else None)
        if data is not None:
            return self.constant(np.transpose(to_float32(data).reshape(*[1] * missing, *data.shape), order))
        shape = (*[1] * missing, *shape_of(expr))
        whole = self.write("Reshape", [self.tensor(expr), self.integers(shape)], f"{self.tensor(expr)}_whole")
        return self._write_reordered(whole, shape, identity(len(order)), order)

    def flat(self, expr: relax.Expr) -> str:
        """Returns the name of a tensor for a value, in any order of axes that keeps the memory order of the
        elements.
        """
        if isinstance(expr, relax.Var):
            shape = shape_of(expr)
            for order, name in self._tensors[expr].items():
                if _moves_nothing(shape, order):
                    return name
        return self.tensor(expr)

    def constant(self, values: Array) -> str:
        """Returns the name of a constant. Equal constants share one name."""
        stored = np.array(values, order="C")
        key = (stored.dtype.name, stored.shape, hashlib.sha256(stored.tobytes()).digest())
        if key not in self._known:
            self._known[key] = self._new("constant")
            self.constants[self._known[key]] = stored
        return self._known[key]

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, np.int64))

    # -- results

    def put(
        self,
        var: relax.Var,
        op_type: str,
        operands: Sequence[str],
        order: Order | None = None,
        **attributes: encoding.Attribute,
    ) -> None:
        """Writes the operator that computes `var`. The axes of the result are in `order`."""
        order = identity(rank_of(var)) if order is None else order
        name = self._name_of(var, order) or self._new(str(var.name))
        domain, _, short = op_type.rpartition(".")
        self.nodes.append(Node.create(short, operands, name, domain, **attributes))
        self._tensors[var] = {order: name}

    @property
    def domains(self) -> list[str]:
        """The domains of operators other than ONNX's own, sorted."""
        return sorted({node.op_type.rpartition(".")[0] for node in self.nodes} - {""})

    def write(self, op_type: str, operands: Sequence[str], stem: str, **attributes: encoding.Attribute) -> str:
        """Writes an operator that is a part of another operator. Returns the name of its result, which is `stem` or a
        similar name.
        """
        name = self._new(stem)
        self.nodes.append(Node.create(op_type, operands, name, "", **attributes))
        return name

    def alias(self, var: relax.Var, expr: relax.Expr, axes: Sequence[int] | None = None) -> None:
        """Makes `var` an alias of `expr` with its axes permuted."""
        axes = identity(rank_of(var)) if axes is None else axes
        tensors = {identity(rank_of(expr)): self.tensor(expr)} if value_of(expr) is not None else self._tensors[expr]
        self._tensors[var] = {tuple(axes.index(axis) for axis in order): name for order, name in tensors.items()}

    def finish(self, outputs: Sequence[tuple[relax.Var, str]]) -> None:
        """Gives the outputs their names. An output that is also an input, or equals another output, is copied."""
        made = {name for node in self.nodes for name in node.outputs} - {*self._ends.values()}
        names: dict[str, str] = {}
        for var, name in outputs:
            found = self.tensor(var)
            if found in made and found not in names:
                names[found] = name
            elif found != name:
                self.nodes.append(Node.create("Identity", (found,), name))
        self.nodes = [self._renamed(node, names) for node in self.nodes]

    def _renamed(self, node: Node, names: Mapping[str, str]) -> Node:
        inputs, (output,) = (tuple(names.get(each, each) for each in ends) for ends in (node.inputs, node.outputs))
        return replace(node, inputs=inputs, outputs=(output,))

    def _name_of(self, var: relax.Var, order: Order) -> str:
        """Returns the name of the output if `var` is an output and `order` is the module's order; otherwise ""."""
        return self._ends.get(var, "") if order == identity(len(order)) else ""

    def _reorder(self, var: relax.Var, old: Order, name: str, order: Order) -> str:
        return self._write_reordered(name, shape_of(var), old, order, self._name_of(var, order))

    def _write_reordered(self, name: str, shape: Sequence[int], old: Order, order: Order, output: str = "") -> str:
        """Writes a Transpose that changes the order of a tensor's axes."""
        permutation = tuple(old.index(axis) for axis in order)
        made = output or self._new(f"{name}_reorder")
        if _moves_nothing([shape[axis] for axis in old], permutation):
            sizes = self.integers([shape[axis] for axis in order])
            self.nodes.append(Node.create("Reshape", (name, sizes), made))
        else:
            self.nodes.append(Node.create("Transpose", (name,), made, perm=permutation))
        return made

    def _new(self, stem: str) -> str:
        name = unique(printable(stem).replace("\\", "_") or "value", self._used_names)
        self._used_names.add(name)
        return name


def rank_of(expr: relax.Expr) -> int:
    return len(expr.ty.shape)


def identity(rank: int) -> Order:
    return tuple(range(rank))


def to_float32(values: Array) -> Array:
    """Converts float64 to float32. (Importers compute parts of operators in float64, in order to round only once.)"""
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _moves_nothing(shape: Sequence[int], order: Order) -> bool:
    """Returns true if a permutation does not change the position of any element in memory."""
    positions = [axis for axis in order if shape[axis] != 1]
    return positions == sorted(positions) or math.prod(shape) == 1
