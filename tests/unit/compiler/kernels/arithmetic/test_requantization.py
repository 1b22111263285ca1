"""Requantization without a fused scale equals the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.arithmetic.epilogue import Epilogue
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.expressions.requantization import DoubleRounding, SingleRounding
from tests.support.fused_scales import SIGNED, Channels, distinguishing_accumulators, holds
from tests.support.images import RUNNABLE


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
@pytest.mark.parametrize("kind", ["twice", "twice, of large accumulators", "once"])
def test_layers_without_a_fused_scale_equal_the_oracle(isa: Isa, kind: str) -> None:
    channels = Channels.drawn(0, (-9, -3), SIGNED, twice=kind != "once")
    of, _ = distinguishing_accumulators(channels)
    filled = np.pad(of, (0, -len(of) % isa.lanes))
    significands, shifts = channels.significands[filled], channels.shifts[filled]
    bounded = kind == "twice"
    rounding = SingleRounding(significands, shifts) if kind == "once" else DoubleRounding(significands, shifts, bounded)
    holds(isa, Epilogue(rounding, SIGNED), channels, 4)
