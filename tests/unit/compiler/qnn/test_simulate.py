"""The simulated form is an ordinary module. It can be printed, parsed, lowered, compiled and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.script import from_source

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.legalize import legalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.printer import text_of
from service.compiler.qnn.simulate import simulate
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.targets import OperandTypes
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, compile_and_run_all, module_of

MODE = get_mode(ONNXRUNTIME)
U8, S8 = QuantizedType("uint8", (0.5,), (128,)), QuantizedType("int8", (0.25,), (3,))
PER_AXIS = QuantizedType("int8", (0.25, 0.5), axis=0)
BIAS = np.array([300, -200], np.int32)


def layer(kind: str, seed: int = 0) -> tvm.IRModule:
    """Returns a model that quantizes real values, computes sums with one operator, requantizes, and dequantizes."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> relax.Constant:
        return relax.const(rng.integers(-127, 128, shape).astype(np.int8))

    def body(emit: Emit, params: list[relax.Var]) -> relax.Var:
        x = emit(ops.quantize(params[0], U8))
        if kind == "conv2d":
            sums = ops.conv2d(x, weights(2, 3, 3, 4), relax.const(BIAS), U8, PER_AXIS, padding=(1, 1, 1, 1))
        elif kind == "conv2d_transpose":
            sums = ops.conv2d_transpose(x, weights(2, 3, 3, 4), None, U8, S8, strides=(2, 2), padding=(1, 1, 0, 0))
        elif kind == "dense":
            sums = ops.dense(x, weights(2, 20), relax.const(BIAS), U8, S8)
        else:
            sums = ops.matmul(x, x, U8, U8)
        axis = 3 if kind == "conv2d" else 1
        sum_type = accumulator_type(U8, U8 if kind == "matmul" else PER_AXIS if kind == "conv2d" else S8, axis)
        return emit(ops.dequantize(emit(ops.requantize(emit(sums), sum_type, U8)), U8))

    shape = (1, 5, 6, 4) if "conv" in kind else (20, 20)
    return module_of([(shape, "float32")], body)


def inputs_of(module: tvm.IRModule, seed: int) -> list[np.ndarray[Any, Any]]:
    shape = [int(dim) for dim in module["main"].params[0].ty.shape]
    return [np.random.default_rng(seed).normal(0, 20, shape).astype(np.float32)]


@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose", "dense", "matmul"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 30), bits=st.sampled_from([12, 14, 18, 32]))
def test_compiled_code_equals_the_oracle(kind: str, seed: int, bits: int) -> None:
    module = layer(kind, seed)
    simulated, inputs = simulate(module, bits).module, inputs_of(module, seed)
    answer, extent = oracle.run(simulated, MODE, inputs)
    canonical = canonicalize(simulated, MODE)
    assert "R.qnn." not in canonical.script()
    for ours, theirs in zip(compile_and_run_all(canonical, inputs), (answer, extent), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if not extent[2]:
        np.testing.assert_array_equal(answer, oracle.run(module, MODE, inputs)[0])
    assert bool(extent[2]) == bool(extent[0] < -(1 << (bits - 1)) or extent[1] >= 1 << (bits - 1))


def test_accumulators_wrap_around() -> None:
    module = layer("dense")
    inputs = inputs_of(module, 1)
    sums = oracle.run(module_of([((20, 20), "float32")], _sums_of(module)), MODE, inputs)[0].astype(np.int64)
    assert (np.abs(sums) >= 1 << 13).any()
    wrapped = simulate(module_of([((20, 20), "float32")], _sums_of(module)), 14).module
    found, extent = oracle.run(wrapped, MODE, inputs)
    np.testing.assert_array_equal(found, (sums + (1 << 13)) % (1 << 14) - (1 << 13))
    assert extent.tolist() == [sums.min(), sums.max(), (found != sums).sum()]


def _sums_of(module: tvm.IRModule) -> Any:
    """Returns a module that consists of the first two operators of `module`."""
    quantized, sums = (binding.value for binding in module["main"].body.blocks[0].bindings[:2])

    def body(emit: Emit, params: list[relax.Var]) -> relax.Var:
        return emit(ops.with_operands(sums, emit(ops.with_operands(quantized, params[0])), *sums.args[1:]))

    return body


def test_the_text_of_the_simulated_form() -> None:
    """The text contains the module before and after the pass."""
    module = layer("dense")
    before, after = text_of(module), text_of(simulate(module, 14).module)
    assert before.splitlines()[3:] == [
        "main",
        "  %0: tensor<20x20xf32>  // x0",
        "  %1 = qnn.quantize(%0) {out_type = !0} : tensor<20x20xu8>  // lv",
        "  %2 = qnn.dense(%1, const<2x20xi8>, const<2xi32>) {in_type = !0, weight_type = !1, accum_dtype = int32}"
        " : tensor<20x2xi32>  // lv1",
        "  %3 = qnn.requantize(%2) {in_type = !2, out_type = !0} : tensor<20x2xu8>  // lv2",
        "  %4 = qnn.dequantize(%3) {in_type = !0} : tensor<20x2xf32>  // lv3",
        "  %5 = %4 : tensor<20x2xf32>  // gv",
        "  return %5",
    ]
    assert after.splitlines()[3:] == [
        "main",
        "  %0: tensor<20x20xf32>  // x0",
        "  %1 = qnn.simulated_quantize(%0) {out_type = !0} : tensor<20x20xf32>  // lv",
        "  %2 = qnn.dense(%1, const<2x20xf32>, const<2xf32>) {in_type = !0, weight_type = !1, accum_dtype = float32}"
        " : tensor<20x2xf32>  // lv1_sums",
        "  %3 = qnn.simulated_extent(%2) {bits = 14} : tensor<3xi64>  // lv1_extent",
        "  %4 = qnn.simulated_accumulate(%2) {bits = 14, dtype = int32} : tensor<20x2xi32>  // lv1",
        "  %5 = qnn.requantize(%4) {in_type = !2, out_type = !0} : tensor<20x2xu8>  // lv2_integers",
        "  %6 = astype(%5) {dtype = float32} : tensor<20x2xf32>  // lv2",
        "  %7 = qnn.simulated_dequantize(%6) {in_type = !0} : tensor<20x2xf32>  // lv3",
        "  %8 = %7 : tensor<20x2xf32>  // gv",
        "  %9 = %8 : tensor<20x2xf32>  // gv1",
        "  %10 = %3 : tensor<3xi64>  // gv2",
        "  return %9, %10",
    ]


def test_the_simulated_form_prints_and_parses_back() -> None:
    module = simulate(layer("conv2d")).module
    text = module.script(show_meta=True)
    assert "R.qnn.simulated_quantize(" in text
    tvm.ir.assert_structural_equal(from_source(text), module)


@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose"])
def test_passes_for_a_target_do_not_change_the_simulated_form(kind: str) -> None:
    module = simulate(layer(kind)).module
    passed = legalize(decompose(module), OperandTypes("int8", "int8"))
    inputs = inputs_of(module, 0)
    for ours, theirs in zip(oracle.run(passed, MODE, inputs), oracle.run(module, MODE, inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: ops.simulated_accumulate(x, 33), "int32 cannot have 33 bits"),
        (lambda x: ops.simulated_accumulate(x, 8, "int8"), "cannot accumulate in int8"),
        (lambda x: ops.simulated_quantize(x, QuantizedType("int32", (0.5,))), "cannot hold all integers"),
        (lambda x: ops.simulated_dequantize(ops.quantize(x, U8), U8), "must be float32, not uint8"),
        (lambda x: ops.dense(x, relax.const(np.ones((2, 4), np.int8)), None, U8, S8, accum_dtype="float32"), "is int8"),
        (lambda x: ops.dense(x, relax.const(np.ones((2, 4), np.float32)), None, U8, S8), "is float32"),
    ],
)
def test_operands_that_do_not_fit_are_refused(call: Any, reason: str) -> None:
    with pytest.raises(IllTyped, match=reason):
        module_of([((3, 4), "float32")], lambda emit, params: emit(call(params[0])))
