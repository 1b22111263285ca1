"""The kernel of a region (`kernels.rows`). It computes a few rows at a time, in several passes over their columns.

A reduction is complete only after a pass, so values that depend on it are computed in a later pass. A computed value
that a later pass needs is stored in memory of the kernel, which stays in L1 cache. Inputs are loaded again in each
pass. A step of a pass processes `STEP` columns of each row, independently of the width of vectors, so that the order of
a sum (`summation.LANES`) is the same on every target. The last step may have fewer columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.program import Program, at_most, load
from service.compiler.kernels.rows import Access, Output, Region, RowsKernel
from service.compiler.kernels.simd.rows.plan import STEP, RowPlan
from service.compiler.kernels.simd.rows.tile import Tile
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.qnn.numerics import Mode

_ITEMS = 16  # the largest number of iterations of the parallel loop


def rows(
    isa: Isa,
    mode: Mode,
    region: Region,
    sources: Sequence[Access],
    outputs: Sequence[Output],
    *,
    has_length: bool = False,
) -> RowsKernel:
    """Returns the kernel of `region`.

    Args:
        sources: the memory layouts of the region's `inputs`.
        outputs: the memory layouts of the region's `outputs`.
        has_length: true if the number of columns to compute, `[1]` int32, is another parameter after the sources. The
            kernel reads further columns only up to the end of a step. They must not change the region's reductions.
    """
    program, plan = Program(), RowPlan(isa, mode, region, sources, outputs, has_length=has_length)
    plan.declare(program)
    tiles = -(-plan.count // plan.tile)
    parallel = worth_sharing(isa, plan.count * region.columns * len(region.steps) / isa.lanes)
    each = -(-tiles // _ITEMS) if parallel else tiles
    items = -(-tiles // each)  # more iterations would compute the last rows again
    own = plan.tile * plan.waiting * (plan.steps + 1) * STEP
    memory = program.parameter("memory", "float32", items * own) if own else None
    _fill_halos(program, isa, plan)
    with program.loop(items, "item", parallel=parallel) as item, program.loop(each, "tile") as tile:
        first = program.bind(at_most((item * each + tile) * plan.tile, plan.count - plan.tile))
        Tile(program, isa, plan, first, (memory, item * own)).write()
    facts = {"rows": plan.count, "columns": region.columns}
    size = next(iter(plan.outputs.values())).access.size
    return RowsKernel(Kernel("rows", program.function(), tuple(plan.constants), size, facts), items * own)


def _fill_halos(program: Program, isa: Isa, plan: RowPlan) -> None:
    for var, output in plan.outputs.items():
        image, fill = output.image, output.fill
        if image is None or not image.halo:
            continue
        if isinstance(fill, int):
            value, planes = tirx.const(fill, "uint8"), image.batch * image.blocks
            fill_halo(program, isa.bytes, plan.written[var], image, value, plane=0, planes=planes, when=True)
            continue
        with program.loop(image.batch, "image") as number:
            stored = tirx.Cast("int32", load(plan.buffers[fill], number, 1)) + BIAS["int8"]
            value, first = program.bind(tirx.Cast("uint8", stored), "uint8"), number * image.blocks
            fill_halo(program, isa.bytes, plan.written[var], image, value, plane=first, planes=image.blocks, when=True)
