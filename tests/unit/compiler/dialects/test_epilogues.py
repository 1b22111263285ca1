"""The kernel of a convolution computes a user's formula, on all targets whose code runs here or is emulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from octet import qnn
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import Target, parse_target
from tests.support.qnn_models import module_of
from tests.support.selected import RUNNING, run_selected

MODE = get_mode(ONNXRUNTIME)
IN_TYPE, OUT_TYPE = QuantizedType("int8", (0.05,), (3,)), QuantizedType("int8", (1 / 64,), (-5,))
WEIGHT_TYPE = QuantizedType("int8", (0.01, 0.004, 0.02), axis=0)
SUMS_TYPE = accumulator_type(IN_TYPE, WEIGHT_TYPE, 3)
WEIGHTS = np.random.default_rng(1).integers(-99, 100, (3, 1, 1, 4)).astype(np.int8)
X = np.random.default_rng(2).integers(-128, 128, (1, 16, 16, 4)).astype(np.int8)


def curve(x: Any) -> Any:
    """A formula of most functions that vectors and GPUs implement."""
    gate = qnn.where(x < 0, qnn.exp(qnn.maximum(x, -20)), qnn.sqrt(abs(x)))
    return qnn.clip(qnn.fma(gate, 0.7, qnn.tanh(x)) / (1 + abs(qnn.floor(x))) + qnn.sigmoid(-x) - qnn.erf(x), -2, 2)


def scaled(q: Any, in_type: QuantizedType, out_type: QuantizedType) -> Any:
    """Another significand and another exponent for each channel."""
    fraction, exponent = np.frexp(in_type.scale / out_type.scale)
    high = qnn.multiply_high(q, min(round(float(fraction) * 2**31), 2**31 - 1))
    return qnn.divide_by_power(high, 1 - int(exponent)) * 2 + out_type.zero_point


@pytest.mark.parametrize("target", [*RUNNING, parse_target("cuda-sm_80")], ids=lambda target: target.name)
@pytest.mark.parametrize("form", ["real", "integer"])
def test_a_formula_is_an_epilogue(target: Target, form: str, tmp_path: Path) -> None:
    mine = qnn.Dialect("mine")
    convert = mine.real()(curve).stored if form == "real" else mine.integer()(scaled)

    def body(emit, xs):  # type: ignore[no-untyped-def]
        weights = relax.const(WEIGHTS), relax.const(np.zeros(3, np.int32))
        sums = emit(qnn.conv2d(xs[0], *weights, IN_TYPE, WEIGHT_TYPE))
        return emit(convert(sums, in_type=SUMS_TYPE, out_type=OUT_TYPE))

    module = module_of([(X.shape, "int8")], body)
    selection, (output,) = run_selected(module, target, ONNXRUNTIME, [X], tmp_path)
    computing = [symbol for symbol, kernel in selection.kernels.items() if kernel.family not in ("pack", "unpack")]
    assert [symbol.rpartition("_")[0] for symbol in computing] == ["octet_conv"]
    assert selection.plain == []
    (expected,) = oracle.run(module, MODE, [X])
    assert len(np.unique(expected)) > 30
    np.testing.assert_array_equal(output, expected)
