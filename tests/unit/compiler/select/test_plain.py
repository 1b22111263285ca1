"""Kernels compute groups with 16-bit values on contiguous tensors. Other operators on 16-bit values remain plain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import MODES
from service.core.target import Target
from tests.support.qnn_models import Emit, float32, module_of
from tests.support.selected import RUNNING, run_selected

HERE = RUNNING
X = QuantizedType("int16", (float32(3e-4),))


def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
    """Emits a convolution with a residual, a depthwise convolution, a padding, a 1x1 convolution, a mean and a dense
    layer."""
    rng = np.random.default_rng(0)

    def layer(x: relax.Var, filters: int, kernel: tuple[int, ...], channels: int, groups: int = 1) -> relax.Var:
        weight = rng.integers(-127, 128, (filters, *kernel, channels // groups)).astype(np.int8)
        weight_type = QuantizedType("int8", tuple(map(float32, rng.uniform(1e-3, 1e-2, filters))), axis=0)
        common = (x, relax.const(weight), relax.const(rng.integers(-9999, 9999, filters), "int64"), X, weight_type)
        if kernel:
            padding = (kernel[0] // 2,) * 4
            sums = emit(ops.conv2d(*common, padding=padding, groups=groups, accum_dtype="int64"))
        else:
            sums = emit(ops.dense(*common, accum_dtype="int64"))
        return emit(ops.requantize(sums, accumulator_type(X, weight_type, len(sums.ty.shape) - 1, "int64"), X))

    x = emit(ops.add(layer(inputs[0], 20, (3, 3), 20), inputs[0], X, X, X))
    x = layer(x, 20, (3, 3), 20, groups=20)
    x = emit(relax.op.nn.pad(x, [0, 0, 1, 0, 0, 2, 0, 0]))
    x = layer(x, 20, (1, 1), 20)
    x = emit(ops.mean(x, X, X, axes=(1, 2), keepdims=False))
    return layer(x, 5, (), 20)


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_network_equals_the_oracle(target: Target, tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(-32768, 32768, (2, 6, 5, 20)).astype(np.int16)
    module = module_of([(x.shape, "int16")], network)
    (expected,) = oracle.run(module, get_mode(MODES[0]), [x])
    selection, (actual,) = run_selected(module, target, MODES[0], [x], tmp_path)
    np.testing.assert_array_equal(actual, expected)
    assert [layer["kernel"] for layer in selection.layers] == ["int16"] * 3
    assert selection.report()["reorders"] == 0
    reasons = {operator["operators"]: operator["reason"] for operator in selection.plain}
    assert reasons["add"] == "no kernel computes this operator on int16"
    assert reasons["conv2d"].startswith("its 20 groups are so small")
    assert reasons["nn.pad"].startswith(("the kernel needs padded tensors", "no kernel computes"))
