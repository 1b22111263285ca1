from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.dynamic import CONV2D, FACTOR, SCALE
from service.compiler.qnn.passes.ranges import share_ranges
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.qnn_models import Emit, module_of


@pytest.mark.parametrize(("numerics", "shares"), [(LITERT_REFERENCE, 2), (XNNPACK, 0)])
def test_a_range_is_computed_once_if_the_mode_shares_it(numerics: str, shares: int) -> None:
    """The two parameters read the same smallest and largest value."""

    def network(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        x, low, high = inputs
        scale, factor = (
            emit(ops.dynamic_parameter(low, high, parameter=each, shared=[1, 2], symmetric=False, kernel=CONV2D))
            for each in (SCALE, FACTOR)
        )
        return [emit(relax.op.multiply(x, each)) for each in (scale, factor)]

    rng, mode = np.random.default_rng(0), get_mode(numerics)
    inputs = [rng.normal(0, sign, (2, 3, 5, width)).astype(np.float32) for sign, width in ((1, 4), (1, 1), (2, 1))]
    module = module_of([(each.shape, "float32") for each in inputs], network)
    after, done = share_ranges(module, mode)
    assert len(done) == shares
    for before, now in zip(oracle.run(module, mode, inputs), oracle.run(after, mode, inputs), strict=True):
        np.testing.assert_array_equal(now, before)
