"""Splits a tensor program into stages, each of which one GPU launch can compute."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.s_tir import Schedule

from service.compiler.lowering.schedule import inline_producers

# (loop variable, extent)
Loop = tuple[tirx.Var, int]


@dataclass(frozen=True)
class Nest:
    """Loops around one TIR block. Each loop is one axis of the block.

    Attributes:
        spatial: the loops over the elements that the block writes, outermost first.
        reduced: the loops over the terms of one element, in the order in which they are added.
        axes: pairs of a variable of the block and the loop variable or constant that it equals.
        body, init: the statements of the block.
        stores: one store for each buffer that the block writes.
    """

    spatial: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    axes: tuple[tuple[tirx.Var, tirx.Var | tirx.IntImm], ...]
    body: tirx.Stmt
    init: tirx.Stmt | None
    stores: tuple[tirx.BufferStore, ...]


def inlined(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Inlines the elementwise producers of `function`. A hand-scheduled function is returned unchanged."""
    if function.attrs and "tirx.is_scheduled" in function.attrs:
        return function
    schedule = Schedule(function)
    inline_producers(schedule)
    return schedule.mod["main"]


def stages_of(function: tirx.PrimFunc) -> tuple[Nest, ...] | None:
    """Returns the nests of `function` in order. Only one nest writes each buffer.

    Returns None if the function does not consist of elementwise blocks and reductions only.
    """
    body = function.body
    if type(body).__name__ != "SBlockRealize" or body.block.iter_vars:
        return None
    top = body.block.body
    nests = [_nest(each) for each in (top.seq if isinstance(top, tirx.SeqStmt) else [top])]
    found = tuple(nest for nest in nests if nest is not None)
    written = [store.buffer for nest in found for store in nest.stores]
    alone = all(not one.same_as(other) for index, one in enumerate(written) for other in written[:index])
    return found if len(found) == len(nests) and alone else None


def _nest(stmt: tirx.Stmt) -> Nest | None:
    loops: list[Loop] = []
    while isinstance(stmt, tirx.For):
        if int(stmt.min) != 0 or stmt.step is not None or not isinstance(stmt.extent, tirx.IntImm):
            return None
        loops.append((stmt.loop_var, int(stmt.extent)))
        stmt = stmt.body
    if type(stmt).__name__ != "SBlockRealize":
        return None
    block = stmt.block
    stores = _stores(block.body)
    certain = isinstance(stmt.predicate, tirx.IntImm) and bool(stmt.predicate.value)
    if not certain or block.alloc_buffers or block.match_buffers or stores is None:
        return None
    kinds: dict[tirx.Var, int] = {}
    for axis, value in zip(block.iter_vars, stmt.iter_values, strict=True):
        if isinstance(value, tirx.Var) and value not in kinds:
            kinds[value] = axis.iter_type
        elif not isinstance(value, tirx.IntImm):
            return None
    reduced = tuple(loop for loop in loops if kinds.get(loop[0]) == tirx.IterVar.CommReduce)
    spatial = tuple(loop for loop in loops if kinds.get(loop[0]) == tirx.IterVar.DataPar)
    if (*spatial, *reduced) != tuple(loops) or (block.init is None) == bool(reduced):
        return None
    axes = tuple((axis.var, value) for axis, value in zip(block.iter_vars, stmt.iter_values, strict=True))
    return Nest(spatial, reduced, axes, block.body, block.init, stores)


def _stores(body: tirx.Stmt) -> tuple[tirx.BufferStore, ...] | None:
    """Returns the stores of a block that only binds values and stores each buffer once; None for other blocks."""
    parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    stores = tuple(part for part in parts if isinstance(part, tirx.BufferStore))
    others = {type(part).__name__ for part in parts} - {"BufferStore", "Bind"}
    buffers = {store.buffer for store in stores}
    return None if others or len(buffers) != len(stores) else stores
