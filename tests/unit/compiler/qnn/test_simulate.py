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
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.simulate import simulate
from service.compiler.qnn.types import QuantizedType
from tests.support.qnn_models import Emit, compile_and_run_all, module_of
from tests.support.simulated_layers import MODE, S8, U8, inputs_of, layer


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


def test_the_simulated_form_prints_and_parses_back() -> None:
    module = simulate(layer("conv2d")).module
    text = module.script(show_meta=True)
    assert "R.qnn.simulated_quantize(" in text
    tvm.ir.assert_structural_equal(from_source(text), module)


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
