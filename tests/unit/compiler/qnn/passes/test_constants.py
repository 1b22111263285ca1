"""Values that do not depend on an input are computed at compile time, with the mode's formulas."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import value_of
from service.compiler.qnn.passes import simplify
from service.compiler.qnn.types import accumulator_type
from tests.support.qnn_models import SIGNED_MODES, Emit, i8, module_of


@pytest.mark.parametrize("mode", SIGNED_MODES)
def test_a_constant_is_quantized_and_multiplied_at_compile_time(mode: str) -> None:
    """The accumulators of a layer are requantized with the rounding of that layer, although the layer no longer
    exists.
    """
    rng = np.random.default_rng(0)
    real, weights = rng.normal(size=(4, 8)).astype(np.float32), rng.integers(-128, 128, (16, 8)).astype(np.int8)
    kind = i8(0.01, 3)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        quantized = emit(ops.quantize(emit(relax.op.reshape(relax.const(real), [4, 8])), kind))
        sums = emit(ops.dense(quantized, relax.const(weights), None, kind, i8(0.02)))
        known = emit(ops.requantize(sums, accumulator_type(kind, i8(0.02), axis=1), i8(0.5)))
        return emit(ops.add(inputs[0], known, kind, i8(0.5), kind))

    module = module_of([((4, 16), "int8")], body)
    x = rng.integers(-128, 128, (4, 16)).astype(np.int8)
    simplified = simplify(module, get_mode(mode))
    (left,) = (found for _, _, found in graph.operations(graph.main_of(simplified.module)) if found is not None)
    assert value_of(left.call.args[1]) is not None
    assert len(simplified.done["constants folded"]) == 4
    expected, got = (oracle.run(each, get_mode(mode), [x])[0] for each in (module, simplified.module))
    np.testing.assert_array_equal(got, expected)


def test_a_model_that_ignores_its_inputs_becomes_a_constant() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.quantize(relax.const(np.array([[1, 2]], np.float32)), i8(0.5)))

    module = simplify(module_of([((1, 2), "int8")], body), get_mode("xnnpack")).module
    np.testing.assert_array_equal(oracle.run(module, get_mode("xnnpack"), [np.zeros((1, 2), np.int8)])[0], [[2, 4]])


def test_position_embeddings_are_computed_at_compile_time() -> None:
    """EdgeNeXt computes its position embeddings from constants, in every call."""
    counts = np.arange(24, dtype=np.float32).reshape(4, 6)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        odd = emit(relax.op.strided_slice(relax.const(counts), [1], [1], [6], [2]))
        return emit(relax.op.add(inputs[0], emit(relax.op.sin(odd))))

    simplified = simplify(module_of([((4, 3), "float32")], body), get_mode("onnxruntime"))
    ((_, addition), *_) = graph.bindings(graph.main_of(simplified.module))
    known = value_of(addition.args[1])
    assert known is not None
    np.testing.assert_allclose(known, np.sin(counts[:, 1::2]), rtol=1e-6)


def test_a_constant_that_would_become_too_large_stays_an_operator() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        zeros = emit(relax.op.broadcast_to(relax.const(np.zeros(1, np.float32)), [1 << 13, 1 << 13]))
        return emit(relax.op.add(inputs[0], zeros))

    done = simplify(module_of([((1, 1), "float32")], body), get_mode("onnxruntime")).done
    assert done["constants folded"] == []
