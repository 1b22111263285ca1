from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes.extremes import split_extremes
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, module_of

MODE = get_mode(ONNXRUNTIME)


@pytest.mark.parametrize(
    ("shape", "axes", "keepdims", "splits"),
    [
        ((2, 5, 7), (0, 1, 2), True, True),
        ((2, 5, 7), (1, 2), True, True),
        ((2, 5, 7), (-1,), True, False),  # The extremes are already found by rows.
        ((1, 5), (0, 1), True, False),  # The tensor is one row.
        ((2, 5, 7), (0, 1), True, False),
        ((2, 5, 7), (0, 1, 2), False, False),
    ],
)
def test_extremes_are_computed_along_rows(
    shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, splits: bool
) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        return [emit(each(inputs[0], axis=list(axes), keepdims=keepdims)) for each in (relax.op.max, relax.op.min)]

    module = module_of([(shape, "float32")], network)
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    after, done = split_extremes(module, MODE)
    assert len(done) == (2 if splits else 0)
    for before, now in zip(oracle.run(module, MODE, [x]), oracle.run(after, MODE, [x]), strict=True):
        np.testing.assert_array_equal(now, before)
