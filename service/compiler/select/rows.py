"""Finds the regions of a model (`kernels.rows`): operators that one kernel computes row by row.

Operators are visited in order. An operator joins the region of its operand if both have the same domain (shape of rows
and columns, see `kernels.rows`), and if no path from the region to the operator goes through an operator outside of
both. A region with such a path could not be computed by a single call.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from service.compiler.kernels.group import shape_of, uniform
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.rows import IDENTITIES, REDUCTIONS, Operand, Region, Step
from service.compiler.locating import declining, located
from service.compiler.qnn import graph
from service.compiler.qnn.operation import Operation, value_of

# A function that raises Declined if no row kernel can compute an operator.
Check = Callable[[str, relax.Expr, Operation | None], None]

_LEAST_COLUMNS = 4
_LEAST_STEPS = 2  # a region with fewer computing operators is not worthwhile: generated code is as fast
_ALONE = {"qnn.dynamic_quantize", "qnn.dynamic_scale"}  # row kernels are faster for these even in a region of one step

Domain = tuple[tuple[int, ...], int]


@dataclass
class _Node:
    """A region that is being formed, or a single binding of the function that is not in a region.

    Attributes:
        indices: the indices of the node's bindings, in order.
        domain: the domain of the region; None if the node is a single binding.
        after: the indices of the bindings that read results of this node.
    """

    indices: list[int]
    domain: Domain | None = None
    after: set[int] = field(default_factory=set)


def in_regions(function: relax.Function, check: Check, taken: set[relax.Var]) -> tuple[relax.Function, list[Region]]:
    """Finds the regions of `function`, and reorders its bindings so that the operators of each region are consecutive.

    Args:
        taken: the variables that other kernels compute. These variables do not become part of regions.

    Returns:
        The reordered function, and the regions.
    """
    forming = _Forming(function, check, taken)
    forming.join()
    regions = forming.regions()
    return forming.ordered(), regions


class _Forming:
    def __init__(self, function: relax.Function, check: Check, taken: set[relax.Var]) -> None:
        self.function, self._check, self._taken = function, check, taken
        self.found = list(graph.operations(function))
        self.index_of = {var: index for index, (var, _, _) in enumerate(self.found)}
        self.results = {result for result in graph.results_of(function) if isinstance(result, relax.Var)}
        self.node = [_Node([index]) for index in range(len(self.found))]
        self.reads = [
            sorted({self.index_of[read] for read in graph.variables(value) if read in self.index_of})
            for _, value, _ in self.found
        ]
        self.readers: list[list[int]] = [[] for _ in self.found]
        for index, sources in enumerate(self.reads):
            for source in sources:
                self.node[source].after.add(index)
                self.readers[source].append(index)

    def join(self) -> None:
        """Turns each supported operator into a region, and joins it with the regions of its operands."""
        for index, (var, value, operation) in enumerate(self.found):
            if var in self._taken or not isinstance(var.ty, relax.TensorType):
                continue
            with suppress(Declined), located(_name(value), str(var.name)), declining():
                self._check(_name(value), value, operation)
                domain = self._domain(index)
                for arg in _operands(value):
                    self._memory(arg, index, domain)
                self._join(index, domain)

    def _join(self, index: int, domain: Domain) -> None:
        node = self.node[index]
        node.domain = domain
        for source in [*self.reads[index], *self._beside(index)]:
            other = self.node[source]
            if other is not node and other.domain == domain and not self._leaves_and_returns(other, node):
                node.indices = sorted({*other.indices, *node.indices})
                node.after |= other.after
                for joined in other.indices:
                    self.node[joined] = node

    def _beside(self, index: int) -> list[int]:
        """Returns the earlier reductions of the same tensor, if the operator at `index` is a reduction."""
        value = self.found[index][1]
        if _name(value) not in REDUCTIONS:
            return []
        others = [(at, self.found[at][1]) for at in range(index) if _name(self.found[at][1]) in REDUCTIONS]
        return [at for at, other in others if other.args[0].same_as(value.args[0])]

    def _domain(self, index: int) -> Domain:
        """Returns the domain of the region that an operator can be part of.

        The domain is the shape of the tensor that the operator computes or reduces. If the operator's operands and
        result have one value for each row, the operator gets the domain of the region that computes the operands.
        """
        var, value, _ = self.found[index]
        shape = shape_of(var)
        if _name(value) in REDUCTIONS:
            before = shape_of(value.args[0])
            if _axes(value) != [len(before) - 1] or len(shape) != len(before):
                raise Declined("it does not reduce only the last axis, or does not keep that axis")
            shape = before
        elif shape and shape[-1] == 1:
            for source in self.reads[index]:
                domain = self.node[source].domain
                if domain is not None and domain[0] == _outer(shape) and shape_of(self.found[source][0])[-1] == 1:
                    return domain
        if not shape or shape[-1] < _LEAST_COLUMNS:
            raise Declined("its rows are too short")
        return _outer(shape), shape[-1]

    def _leaves_and_returns(self, first: _Node, second: _Node) -> bool:
        """Returns true if a path from one of two nodes to the other goes through a third node."""
        both, last = (first, second), max(first.indices[-1], second.indices[-1])
        waiting = [self.node[position] for node in both for position in node.after]
        waiting = [node for node in waiting if node not in both]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen or node.indices[0] > last:
                continue
            seen.add(id(node))
            for position in node.after:
                if self.node[position] in both:
                    return True
                waiting.append(self.node[position])
        return False

    def regions(self) -> list[Region]:
        """Returns the regions for which a kernel is worthwhile. Other regions are dissolved into single bindings."""
        found = []
        for node in self._nodes():
            if node.domain is None:
                continue
            self._leave_views(node)
            names = [_name(self.found[position][1]) for position in node.indices]
            computing = sum(name not in IDENTITIES for name in names)
            if computing < _LEAST_STEPS and _ALONE.isdisjoint(names):
                self._dissolve(node)
                continue
            found.append(self._region(node, node.domain))
        return found

    def _region(self, node: _Node, domain: Domain) -> Region:
        steps, own = [], set(node.indices)
        for position in node.indices:
            var, value, operation = self.found[position]
            operands = tuple(self._operand(arg, position, domain) for arg in _operands(value))
            of_row, reduces = shape_of(var)[-1] == 1 != domain[1], _name(value) in REDUCTIONS
            steps.append(Step(var, _name(value), value, operation, operands, of_row, reduces))
        outputs = [self.found[position][0] for position in node.indices if self._is_read_outside(position, own)]
        return Region(str(outputs[-1].name), *domain, tuple(steps), tuple(outputs))

    def _is_read_outside(self, index: int, own: set[int]) -> bool:
        return self.found[index][0] in self.results or not own.issuperset(self.readers[index])

    def _leave_views(self, node: _Node) -> None:
        """Removes the bindings at the end of a region that only reshape or rename a result for readers outside of the
        region.
        """
        for position in reversed(node.indices.copy()):
            inside = any(self.node[reader] is node for reader in self.readers[position])
            if not inside and _name(self.found[position][1]) in IDENTITIES:
                self._take_out(node, position)

    def _dissolve(self, node: _Node) -> None:
        for position in node.indices.copy():
            self._take_out(node, position)
        node.domain = None

    def _take_out(self, node: _Node, position: int) -> None:
        node.indices.remove(position)
        self.node[position] = _Node([position], None, set(self.readers[position]))

    def _nodes(self) -> list[_Node]:
        return list({id(node): node for node in self.node}.values())

    def _operand(self, arg: relax.Expr, index: int, domain: Domain) -> Any:
        source = self.index_of.get(arg) if isinstance(arg, relax.Var) else None
        if source is not None and self.node[source] is self.node[index]:
            return arg
        return self._memory(arg, index, domain)

    def _memory(self, arg: relax.Expr, index: int, domain: Domain) -> Operand | float:
        """Describes an operand that the region does not compute: a number, or a tensor in memory.

        Raises:
            Declined: the elements of the tensor do not correspond to those of the domain.
        """
        var, value, _ = self.found[index]
        constant = value_of(arg)
        if constant is not None and uniform(constant):
            number: float = constant.reshape(-1)[0].item()
            return number
        shape = shape_of(arg) if constant is None else constant.shape
        seen = shape if _name(value) in REDUCTIONS else shape_of(var)
        if _name(value) == "relax.reshape":
            if (_outer(shape), shape[-1:]) != (_outer(seen), seen[-1:]):
                raise Declined("the reshape changes the rows")
            axes = [axis for axis, extent in enumerate(shape[:-1]) if extent != 1]
        else:
            axes = _aligned(shape, seen)
        strides = tuple(0 if axis < 0 else _stride(shape, axis) for axis in axes)
        column = 1 if shape and shape[-1] == domain[1] else 0
        return Operand(arg if constant is None else constant, strides, column, tuple(axes))

    def ordered(self) -> relax.Function:
        """Returns the function with its bindings reordered, so that the bindings of each node are consecutive."""
        nodes, done = self._nodes(), []
        missing = {id(node): self._sources(node) for node in nodes}
        ready = [(node.indices[-1], node.indices) for node in nodes if not missing[id(node)]]
        heapq.heapify(ready)
        while ready:
            _, positions = heapq.heappop(ready)
            done += positions
            own = self.node[positions[0]]
            for node in {
                id(self.node[reader]): self.node[reader] for position in positions for reader in self.readers[position]
            }.values():
                if node is not own:
                    missing[id(node)].discard(id(own))
                    if not missing[id(node)]:
                        heapq.heappush(ready, (node.indices[-1], node.indices))
        function = self.function
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        assert len(done) == len(bindings)
        block = relax.DataflowBlock([bindings[position] for position in done])
        body = relax.SeqExpr([block], function.body.body)
        return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)

    def _sources(self, node: _Node) -> set[int]:
        """Returns the other nodes whose results a node reads."""
        read = {id(self.node[source]) for position in node.indices for source in self.reads[position]}
        return read - {id(node)}


def _name(value: relax.Expr) -> str:
    name = str(value.op.name) if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
    return name.replace("relax.qnn.", "qnn.")


def _operands(value: relax.Expr) -> list[relax.Expr]:
    """Returns the tensor operands of an operator."""
    args = value.args if isinstance(value, relax.Call) else [value]
    return [arg for arg in args if isinstance(arg.ty, relax.TensorType)]


def _axes(call: relax.Call) -> list[int]:
    rank = len(shape_of(call.args[0]))
    if _name(call) in ("qnn.real_mean", "qnn.real_squares"):
        return [rank - 1]
    axes = call.attrs["axes"] if _name(call) == "qnn.real_sum" else call.attrs.axis
    return [int(axis) % rank for axis in axes]


def _outer(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns all dimensions except the last one and those of length 1."""
    return tuple(extent for extent in shape[:-1] if extent != 1)


def _aligned(shape: Sequence[int], seen: Sequence[int]) -> list[int]:
    """Returns, for each outer dimension of a domain, the corresponding axis of an operand.

    The operand has the shape `shape` and is broadcast to `seen`. The axis is -1 if the operand is repeated along the
    dimension.
    """
    missing = len(seen) - len(shape)
    axes = []
    for index, extent in enumerate(seen[:-1]):
        axis = index - missing
        if axis >= 0 and shape[axis] not in (1, extent):
            raise Declined("its operand cannot be broadcast to the shape of the region")
        if extent != 1:
            axes.append(axis if axis >= 0 and shape[axis] == extent else -1)
    if shape and shape[-1] not in (1, seen[-1]):
        raise Declined("its operand cannot be broadcast to the shape of the region")
    return axes


def _stride(shape: Sequence[int], axis: int) -> int:
    """Returns the stride of an axis, in elements."""
    total = 1
    for extent in shape[axis + 1 :]:
        total *= extent
    return total
