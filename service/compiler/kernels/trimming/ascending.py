"""Loops whose iterations write ascending positions, once or several times over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from service.compiler.kernels.trimming.nodes import with_body


@dataclass(frozen=True)
class Ascending:
    """The iterations of a loop that write ascending positions, several times over.

    Attributes:
        period: the number of iterations of a pass.
        run: the number of iterations that begin at the same position.
        step: the number of positions from one run to the next.
        more: the number of runs that are computed in addition, because the last one begins earlier.
    """

    period: int
    run: int
    step: int
    more: int

    @classmethod
    def of(cls, least: NDArray[np.int64]) -> Ascending | None:
        """Returns the pattern of the smallest positions that the iterations write; None if there is none."""
        count = len(least)
        for period in (each for each in range(2, count + 1) if count % each == 0):
            first = least[:period]
            if (first[1:] < first[:-1]).any() or (least.reshape(-1, period) != first).any():
                continue
            run = int((first == first[0]).sum())
            if run == period or first[0] != 0:
                continue
            step, passed = int(first[run]), np.arange(period) // run
            for more in range(3):
                if (first >= step * (passed - more)).all():
                    return cls(period, run, step, more)
        return None

    def loop(self, stmt: tirx.For, body: Any, length: tirx.Var) -> tirx.For:
        """Returns the loop `stmt` with only the iterations that write positions below `length`."""
        runs = tirx.floordiv(length + (self.step - 1), self.step) + self.more
        needed = tirx.min(runs * self.run, self.period)
        passes = int(stmt.extent) // self.period
        number = tirx.Var(f"{stmt.loop_var.name}_", "int32")
        if passes == 1:
            return with_body(stmt, body, extent=needed)
        place = tirx.floordiv(number, needed) * self.period + tirx.floormod(number, needed)
        inside = tirx.SeqStmt([tirx.Bind(stmt.loop_var, place), body])
        return tirx.For(number, tirx.const(0, "int32"), needed * passes, stmt.kind, inside)
