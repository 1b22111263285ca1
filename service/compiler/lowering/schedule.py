"""The default schedule. It makes any canonical tensor program parallel and vectorized for a CPU.

All programs are scheduled in the same way. Elementwise producers and epilogues are inlined, so that at most one
reduction and one elementwise block remain. A reduction is split into tiles of accumulators in registers: columns (the
innermost axis, in whole vectors) by rows (the axis before it, unrolled). The epilogue runs on each tile while it is in
registers. The order in which the terms of an output are added never changes, so results do not depend on the schedule.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir import register_op_attr
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from service.compiler.targets import CodegenTarget

_ACCUMULATOR_BYTES = 4
_SPARE_REGISTERS = 4  # the registers for weights, a broadcast element and temporaries
_STACK_LIMIT_BYTES = 1024  # TVM moves larger buffers to the heap
_SHARES = 64  # a parallel loop has at least this many iterations if possible, so that threads get almost equal shares
_SERIAL_BELOW = 1 << 14  # with fewer elements or products, waking another thread costs more than it saves

# LLVM supports these functions on vectors, but TVM does not mark them as vectorizable. Without the mark, TVM would turn
# vectorized loops back into scalar loops, and fail if a variable is bound in the loop.
register_op_attr("tirx.nearbyint", "TVectorizable", True)


def schedule(module: tvm.IRModule, target: CodegenTarget) -> tvm.IRModule:
    """Schedules every PrimFunc of `module`. Relax functions do not change."""
    functions = {
        variable: _scheduled(function, target) if isinstance(function, tirx.PrimFunc) else function
        for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _scheduled(function: tirx.PrimFunc, target: CodegenTarget) -> tirx.PrimFunc:
    if function.attrs and "tirx.is_scheduled" in function.attrs:
        return function
    sch = Schedule(function)
    inline_producers(sch)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    reductions = [block for block in blocks if _reduction_loops(sch, block)]
    if not reductions:
        _elementwise(sch, blocks[-1], target)
    elif len(reductions) == 1 and len(blocks) <= 2:
        _reduction(sch, reductions[0], blocks[-1] if len(blocks) == 2 else None, target)
    return sch.mod["main"].with_attrs({**dict((function.attrs or {}).items()), "tirx.is_scheduled": True})


def inline_producers(sch: Schedule) -> None:
    """Inlines every elementwise block except those that write outputs."""
    root = sch.get_sblock("root")
    inner = sch.get(root).alloc_buffers
    for block in sch.get_child_blocks(root):
        written = [region.source for region in sch.get(block).writes]
        if all(buffer in inner for buffer in written) and not _reduction_loops(sch, block):
            sch.compute_inline(block)


def _elementwise(sch: Schedule, block: SBlockRV, target: CodegenTarget) -> None:
    loops = sch.get_loops(block)
    if not loops:
        return
    columns = _extent(sch, loops[-1])
    lanes = target.vector_bytes // _ACCUMULATOR_BYTES
    *outer, last = loops
    total = _product(sch, loops)
    if columns % lanes == 0:
        last, inner = sch.split(last, [None, lanes])
        sch.vectorize(inner)
        if _product(sch, outer) < _SHARES:  # if there are enough rows, threads get whole rows
            outer = [*outer, last]
    elif columns <= lanes:
        sch.vectorize(last)
    else:
        outer = loops
    if outer and total >= _SERIAL_BELOW:
        sch.parallel(sch.fuse(*outer))


def _reduction(sch: Schedule, block: SBlockRV, epilogue: SBlockRV | None, target: CodegenTarget) -> None:
    loops, reduce = sch.get_loops(block), _reduction_loops(sch, block)
    spatial = loops[: len(loops) - len(reduce)]
    if len(spatial) < 2 or _extent(sch, spatial[-1]) == 1:
        return  # without a second axis or columns, vectorizing would change the order in which terms are added
    columns, rows = _tile(_extent(sch, spatial[-1]), _extent(sch, spatial[-2]), target)
    work = _product(sch, loops)
    column_outer, column = sch.split(spatial[-1], [None, columns])
    row_outer, row = sch.split(spatial[-2], [None, rows])
    sch.reorder(row_outer, column_outer, *reduce, row, column)
    writer = epilogue if epilogue is not None else sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(writer, column_outer)
    # The epilogue remains a loop over rows: it is long, and unrolling it makes LLVM ten times slower without a gain.
    if own := sch.get_loops(writer)[len(spatial) :]:  # a tile of one element has no loops
        sch.vectorize(own[-1])
    sch.set_scope(block, 0, "local")
    if work >= _SERIAL_BELOW:
        sch.parallel(sch.fuse(*spatial[:-2], row_outer))
    _unroll_tile(sch, block)
    _unroll_tile(sch, sch.decompose_reduction(block, reduce[0]))


def _unroll_tile(sch: Schedule, block: SBlockRV) -> None:
    """Unrolls the two loops over a tile, so that its accumulators become registers."""
    *_, row, column = sch.get_loops(block)
    sch.unroll(row)
    sch.vectorize(column)


def _tile(columns: int, rows: int, target: CodegenTarget) -> tuple[int, int]:
    """Returns (columns, rows) of a tile of accumulators. Both divide their axis, and the tile fits the registers."""
    lanes = target.vector_bytes // _ACCUMULATOR_BYTES
    registers = min(target.vector_registers - _SPARE_REGISTERS, _STACK_LIMIT_BYTES // target.vector_bytes)
    wide = [d for d in _divisors(columns) if d % lanes == 0 and d <= 4 * lanes]
    # Two vectors of columns amortize the load of a broadcast element. With one row, a tile has as many vectors as
    # possible.
    preferred = [d for d in wide if d <= 2 * lanes] if rows > 1 and wide else wide
    tile_columns = max(preferred or [d for d in _divisors(columns) if d <= 2 * lanes])
    vectors = -(-tile_columns // lanes)
    return tile_columns, max(d for d in _divisors(rows) if d <= max(1, registers // vectors))


def _reduction_loops(sch: Schedule, block: SBlockRV) -> list[LoopRV]:
    """Returns the loops over a block's reduced axes, which are the last ones. An elementwise block has none."""
    axes = sch.get(block).iter_vars
    reduced = [axis for axis in axes if axis.iter_type == tirx.IterVar.CommReduce]
    return list(sch.get_loops(block)[-len(reduced) :]) if reduced else []


def _extent(sch: Schedule, loop: LoopRV) -> int:
    return int(sch.get(loop).extent)


def _product(sch: Schedule, loops: list[LoopRV]) -> int:
    total = 1
    for loop in loops:
        total *= _extent(sch, loop)
    return total


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
