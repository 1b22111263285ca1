"""A new rounding is one formula and one line in a mode's table: generated code and the kernels of all targets then
compute it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.libraries import library_for
from service.compiler.qnn import ops
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import FloatScale, Requantization
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.expressed import Requantizes
from service.compiler.qnn.numerics.formula import store
from service.compiler.qnn.numerics.functions.softmax import TableSoftmax
from service.compiler.qnn.numerics.scaling.requantize import float_scales
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import XNNPACK
from service.core.models.arrays import Array
from service.core.target import Target, parse_target
from tests.support.qnn_models import module_of
from tests.support.selected import RUNNING, run_selected


@dataclass(frozen=True)
class ScaleAway(FloatScale):
    """Multiplies by a float32 scale, and rounds halves away from zero."""

    def express(self, ops: Ops, accumulator: Value, channels: tuple[Value, ...]) -> Value:  # type: ignore[override]
        return ops.keep(ops.round_away(ops.limited(ops.cast(accumulator, "float32") * channels[0])))


class RequantizeAway(Requantizes):
    """A rounding that no runtime has for convolutions."""

    summary = "z + round_away(float(acc) * float(s_x * s_w / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        scaled = (x.astype(np.float32) * float_scales(operation)).astype(np.float64)
        rounded = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
        return store(rounded.astype(np.int64) + out_type.zero_point, out_type)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        return ScaleAway(float_scales(operation), bounded=False)


MODE = get_mode(XNNPACK)
NEW = replace(MODE, formulas={**MODE.formulas, "conv2d+requantize": RequantizeAway()})

IN_TYPE, OUT_TYPE = QuantizedType("int8", (0.5,), (3,)), QuantizedType("int8", (1.0,), (-5,))
WEIGHT_TYPE = QuantizedType("int8", (0.25, 0.125, 0.5), axis=0)
WEIGHTS = np.random.default_rng(1).integers(-9, 10, (3, 1, 1, 4)).astype(np.int8)
X = np.random.default_rng(2).integers(-30, 30, (1, 16, 16, 4)).astype(np.int8)
GPU = parse_target("cuda-sm_80")


def expected() -> Array:
    """Returns the output, computed without the formula and its expression."""
    sums = np.einsum("nhwc,oc->nhwo", X.astype(np.int64) - 3, WEIGHTS[:, 0, 0].astype(np.int64))
    scaled = sums * np.array([0.125, 0.0625, 0.25])  # powers of two, so that many sums are halfway between integers
    rounded = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
    assert (np.abs(scaled - np.trunc(scaled)) == 0.5).sum() > 20
    return np.asarray(np.clip(rounded - 5, -128, 127).astype(np.int8))


@pytest.mark.parametrize("target", [*RUNNING, GPU], ids=lambda target: target.name)
@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "generated code"])
def test_a_new_rounding(target: Target, with_kernels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if target is GPU and not with_kernels:
        pytest.skip("generated code for GPUs is emulated by the tests of lowering")
    monkeypatch.setattr("tools.kernel.building.get_mode", lambda name: NEW)

    def body(emit, xs):  # type: ignore[no-untyped-def]
        weights = relax.const(WEIGHTS), relax.const(np.zeros(3, np.int32))
        sums = emit(ops.conv2d(xs[0], *weights, IN_TYPE, WEIGHT_TYPE))
        return emit(ops.requantize(sums, accumulator_type(IN_TYPE, WEIGHT_TYPE, 3), OUT_TYPE))

    module = module_of([(X.shape, "int8")], body)
    declined = replace(NEW, formulas={**NEW.formulas, "conv2d+requantize": TableSoftmax()})
    library = library_for(target, NEW if with_kernels else declined)
    assert library is not None
    selection, (output,) = run_selected(module, target, XNNPACK, [X], tmp_path, lambda mode: library)
    assert any(symbol.startswith("octet_conv") for symbol in selection.kernels) == with_kernels
    np.testing.assert_array_equal(output, expected())
