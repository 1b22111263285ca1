"""The instructions of every instruction set equal the oracle."""

from __future__ import annotations

import pytest

from service.compiler.kernels.arithmetic.epilogue import Epilogue
from service.compiler.kernels.arithmetic.fused import FusedScale
from service.compiler.kernels.vector.isa import Isa
from tests.support.fused_scales import KINDS, distinguishing_accumulators, holds
from tests.support.images import RUNNABLE


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
@pytest.mark.parametrize("pixels", [1, 4])
def test_the_instructions_equal_the_oracle(isa: Isa, pixels: int) -> None:
    for channels, fused in KINDS.values():
        of, _ = distinguishing_accumulators(channels)
        one_each = FusedScale(
            fused.scales[of],
            fused.offsets[of],
            fused.starts[of],
            tuple((wrong[of], right[of]) for wrong, right in fused.exceptions),
            fused.mirrored,
            fused.centred,
        )
        epilogue = Epilogue(one_each.extended(-(-len(of) // isa.lanes) * isa.lanes), channels.out)
        holds(isa, epilogue, channels, pixels)
