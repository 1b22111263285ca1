from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes.pads import move_pads
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, float32, i8, module_of, u8

MODE = get_mode(ONNXRUNTIME)
KIND = i8(0.37, -3)
BOUNDED = QuantizedType("int8", (float32(0.37),), (-3,), storage_min=-100, storage_max=100)


def test_a_permutation_after_a_pad_moves_before_it() -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        real = emit(relax.op.nn.pad(emit(ops.dequantize(inputs[0], KIND)), [0, 0, 0, 0, 0, 1, 2, 1]))
        return emit(relax.op.permute_dims(emit(ops.quantize(real, KIND)), [0, 2, 3, 1]))

    module = module_of([((2, 3, 4, 5), "int8")], network)
    moved, _ = move_pads(module, MODE)
    calls = [value for _, value in graph.bindings(graph.main_of(moved)) if isinstance(value, relax.Call)]
    assert [str(call.op.name) for call in calls[-2:]] == ["relax.permute_dims", "relax.nn.pad"]
    assert [int(width) for width in calls[-1].attrs.pad_width] == [0, 0, 0, 1, 2, 1, 0, 0]
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 5)).astype(np.int8)
    np.testing.assert_array_equal(oracle.run(moved, MODE, [x])[0], oracle.run(module, MODE, [x])[0])


@pytest.mark.parametrize("read_twice", [False, True])
def test_a_permutation_after_a_quantized_pad_moves_before_it(read_twice: bool) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        wide = emit(relax.op.nn.pad(emit(ops.quantize(inputs[0], KIND)), [0, 0, 0, 0, 0, 1, 2, 1], pad_value=-3))
        return [emit(relax.op.permute_dims(wide, [0, 2, 3, 1])), *([wide] if read_twice else [])]

    module = module_of([((2, 3, 4, 5), "float32")], network)
    moved, done = move_pads(module, MODE)
    assert len(done) == int(not read_twice)
    x = np.random.default_rng(0).normal(0, 20, (2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(oracle.run(moved, MODE, [x])[0], oracle.run(module, MODE, [x])[0])


@pytest.mark.parametrize(
    ("before", "after", "mode", "moves"),
    [
        (KIND, KIND, "constant", True),
        (KIND, i8(0.38, -3), "constant", False),  # the types before and after the pad differ
        (KIND, u8(0.37, 125), "constant", False),
        (BOUNDED, BOUNDED, "constant", False),  # quantizing clamps values that exceed the bounds
        (KIND, KIND, "reflect", False),
    ],
)
def test_pads_move_only_if_values_are_restored(
    before: QuantizedType, after: QuantizedType, mode: str, moves: bool
) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        real = emit(ops.dequantize(inputs[0], before))
        widths = [0, 0, 1, 2, 0, 1, 0, 0]
        return emit(ops.quantize(emit(relax.op.nn.pad(real, widths, mode, pad_value=0.9)), after))

    module = module_of([((1, 4, 5, 3), before.storage)], network)
    moved, done = move_pads(module, MODE)
    assert len(done) == int(moves)
    if mode == "constant":
        x = np.random.default_rng(0).integers(-128, 128, (1, 4, 5, 3)).astype(before.storage)
        (expected,), (actual,) = oracle.run(module, MODE, [x]), oracle.run(moved, MODE, [x])
        np.testing.assert_array_equal(actual, expected)
