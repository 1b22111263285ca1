"""Several operators that only copy elements become one kernel. This kernel writes no intermediate tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.select.selection import Selection
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, float32, module_of, u8
from tests.support.selected import RUNNING, run_selected

HERE = RUNNING
pytestmark = pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
X, WIDER = u8(0.05, 128), u8(0.08, 100)


def checked(module: tvm.IRModule, scratch: Path) -> Selection:
    """Checks that `module` computes what the oracle does, and returns the selection of its kernels."""
    rng = np.random.default_rng(0)
    shapes = [tuple(int(dim) for dim in param.ty.shape) for param in module["main"].params]
    inputs = [rng.integers(0, 256, shape).astype(np.uint8) for shape in shapes]
    expected = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
    selection, actual = run_selected(module, HERE[0], ONNXRUNTIME, inputs, scratch)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return selection


def layer(emit: Emit, x: relax.Var, filters: int, out_type: QuantizedType = X) -> relax.Var:
    rng, channels = np.random.default_rng(filters), int(x.ty.shape[3])
    weight_type = QuantizedType("int8", (float32(0.003),))
    weight = relax.const(rng.integers(-127, 128, (filters, 1, 1, channels)).astype(np.int8))
    sums = emit(ops.conv2d(x, weight, None, X, weight_type))
    return emit(ops.requantize(sums, accumulator_type(X, weight_type, axis=3), out_type))


def test_channels_are_joined_rescaled_shuffled_and_split_in_one_pass(tmp_path: Path) -> None:
    """Builds a unit of ShuffleNetV2, which half of the channels bypass, and the beginning of the next unit."""

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        stays, taken = layer(emit, inputs[0], 29), layer(emit, inputs[0], 29, WIDER)
        joined = emit(ops.concatenate([stays, taken], [X, WIDER], X, 3))
        groups = emit(relax.op.reshape(joined, [1, 6, 6, 2, 29]))
        moved = emit(relax.op.permute_dims(groups, (0, 1, 2, 4, 3)))
        shuffled = emit(relax.op.reshape(moved, [1, 6, 6, 58]))
        first, second = (emit(relax.op.strided_slice(shuffled, [3], [begin], [begin + 29], [1])) for begin in (0, 29))
        return emit(ops.add(layer(emit, first, 29), layer(emit, second, 29), X, X, X))

    selection = checked(module_of([((1, 6, 6, 16), "uint8")], body), tmp_path)
    moves = [layer for layer in selection.layers if layer["kernel"] == "move"]
    assert [move["operators"] for move in moves] == ["concatenate+reshape+permute_dims+reshape+strided_slice"] * 2
    assert [layer for layer in selection.layers if layer["kernel"] == "concat"] == []
    assert selection.plain == []
    assert selection.declined == {}


def test_pixels_of_several_images_are_joined_and_rescaled(tmp_path: Path) -> None:
    """The head of a detector: the predictions for the anchors of two resolutions are concatenated."""

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        parts = [layer(emit, inputs[0], 3 * 21), layer(emit, inputs[1], 3 * 21, WIDER)]
        rows = [emit(relax.op.reshape(part, [1, pixels * 3, 21])) for part, pixels in zip(parts, (36, 9), strict=True)]
        return emit(ops.concatenate(rows, [X, WIDER], X, 1))

    selection = checked(module_of([((1, 6, 6, 16), "uint8"), ((1, 3, 3, 16), "uint8")], body), tmp_path)
    assert [layer["operators"] for layer in selection.layers if layer["kernel"] == "move"] == [
        "reshape+reshape+concatenate"
    ]
    assert selection.plain == []


def test_a_constant_token_is_put_before_the_others(tmp_path: Path) -> None:
    token = relax.const(np.arange(40, dtype=np.uint8).reshape(1, 1, 40))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        patches = emit(relax.op.reshape(layer(emit, inputs[0], 40), [1, 16, 40]))
        tokens = emit(relax.op.concat([token, patches], axis=1))
        return emit(ops.table(tokens, X, X, list(range(256))[::-1]))

    selection = checked(module_of([((1, 4, 4, 16), "uint8")], body), tmp_path)
    assert [layer["kernel"] for layer in selection.layers] == ["pack", "conv", "move", "table", "unpack"]


def test_tokens_and_channels_change_places(tmp_path: Path) -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        tokens = emit(relax.op.reshape(layer(emit, inputs[0], 40), [1, 36, 40]))
        heads = emit(relax.op.reshape(tokens, [1, 36, 4, 10]))
        return emit(relax.op.permute_dims(heads, (0, 2, 3, 1)))

    selection = checked(module_of([((1, 6, 6, 16), "uint8")], body), tmp_path)
    (move,) = (layer for layer in selection.layers if layer["kernel"] == "move")
    assert move["squares"] > 0
    assert selection.plain == []


def test_a_slice_of_a_tensor_that_is_written_is_read_in_place(tmp_path: Path) -> None:
    """A concatenation reads both halves of the channels in place, as in YOLO."""

    def body(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        whole = layer(emit, inputs[0], 32)
        halves = [emit(relax.op.strided_slice(whole, [3], [begin], [begin + 16], [1])) for begin in (0, 16)]
        joined = emit(ops.concatenate([*halves, layer(emit, halves[1], 16)], [X] * 3, X, 3))
        return [layer(emit, joined, 16), layer(emit, whole, 16)]

    selection = checked(module_of([((1, 6, 6, 16), "uint8")], body), tmp_path)
    assert "move" not in [layer["kernel"] for layer in selection.layers]
