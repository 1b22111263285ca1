"""Finds the regions whose kernels need not compute the columns beyond the length of the input.

Nothing may read these columns of the results. A reduction must combine elements that were replaced, beyond the length,
by a value that does not change its result: `qnn.lengths.bind` does so.
"""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.kernels.group import shape_of
from service.compiler.kernels.rows import IDENTITIES, Operand, Region, Step
from service.compiler.qnn.lengths.unread import UnreadAxes

# The partial sums of `qnn.real_sum` are never -0, so that adding 0 does not change them.
_NEUTRAL = {"relax.max": -math.inf, "relax.min": math.inf, "qnn.real_sum": 0.0}


def leaves_out_columns(region: Region, unread: UnreadAxes) -> bool:
    """Returns true if the columns of a region beyond the length have no effect on what is read of its outputs."""
    steps = {step.var: step for step in region.steps}
    columns = [var for var in region.outputs if not steps[var].of_row]
    if not all(len(shape_of(var)) - 1 in unread.of(var) for var in columns):
        return False
    reductions = [step for step in region.steps if step.reduces]
    return bool(columns or reductions) and all(_is_bounded(step, steps, unread) for step in reductions)


def _is_bounded(reduction: Step, steps: dict[relax.Var, Step], unread: UnreadAxes) -> bool:
    """Returns true if the elements that a step reduces are neutral beyond the length."""
    source = reduction.operands[0]
    while isinstance(source, relax.Var) and steps[source].name in IDENTITIES:
        source = steps[source].operands[0]
    if not isinstance(source, relax.Var) or steps[source].name != "relax.where":
        return False
    condition, _, other = steps[source].operands
    inside = isinstance(condition, Operand) and condition.column == 1 and unread.is_inside(condition.tensor)
    return inside and isinstance(other, float) and other == _NEUTRAL.get(reduction.name)
