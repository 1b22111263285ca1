"""Successive reshapes and permutations become one permutation, and every element keeps its position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.qnn import graph, oracle
from service.compiler.qnn.joins import join_moves
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.transposes import move_transposes
from tests.support.examples import examples
from tests.support.qnn_models import Emit, module_of

MODE = get_mode("onnxruntime")
Step = tuple[int, ...]

# The steps from `[1, 8, 4, 6]` to MobileViT's patches and back, for an image with channels last.
UNFOLD: list[tuple[str, Step]] = [
    ("permute", (0, 3, 1, 2)),
    ("reshape", (16, 2, 3, 2)),
    ("permute", (0, 2, 1, 3)),
    ("reshape", (1, 8, 6, 4)),
    ("permute", (0, 3, 2, 1)),
    ("reshape", (4, 6, 8)),
]
FOLD: list[tuple[str, Step]] = [
    ("reshape", (1, 4, 6, 8)),
    ("permute", (0, 3, 2, 1)),
    ("reshape", (16, 3, 2, 2)),
    ("permute", (0, 2, 1, 3)),
    ("reshape", (1, 8, 4, 6)),
    ("permute", (0, 2, 3, 1)),
]


def moving(shape: Step, steps: Sequence[tuple[str, Step]], *, shown: Sequence[int] = ()) -> tvm.IRModule:
    """`shown`: intermediate tensors that are also outputs."""

    def body(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        x, outputs = inputs[0], []
        for index, (kind, numbers) in enumerate(steps):
            x = emit(relax.op.permute_dims(x, numbers) if kind == "permute" else relax.op.reshape(x, numbers))
            outputs += [x] if index in shown else []
        return [*outputs, emit(relax.op.nn.relu(x))]

    return module_of([(shape, "float32")], body)


def agree(before: tvm.IRModule, after: tvm.IRModule, shape: Step) -> None:
    sample = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for expected, actual in zip(oracle.run(before, MODE, [sample]), oracle.run(after, MODE, [sample]), strict=True):
        np.testing.assert_array_equal(actual, expected)


def calls(module: tvm.IRModule) -> list[relax.Call]:
    return [value for _, value in graph.bindings(graph.main_of(module)) if isinstance(value, relax.Call)]


def names(module: tvm.IRModule) -> list[str]:
    return [call.op.name.removeprefix("relax.") for call in calls(module)]


@pytest.mark.parametrize(("shape", "steps"), [((1, 4, 6, 8), UNFOLD), ((4, 6, 8), FOLD)], ids=["unfold", "fold"])
def test_patches_move_whole_pixels_at_once(shape: Step, steps: list[tuple[str, Step]]) -> None:
    module = moving(shape, steps)
    joined = move_transposes(join_moves(module))
    agree(module, joined, shape)
    assert names(joined) == ["reshape", "permute_dims", "reshape", "nn.relu"]
    axes = [list(value.attrs.axes) for value in calls(joined) if value.op.name == "relax.permute_dims"]
    assert [int(each[-1]) for each in axes] == [len(each) - 1 for each in axes]


def test_a_permutation_and_its_inverse_are_removed() -> None:
    module = moving((1, 4, 6, 8), [*UNFOLD, *FOLD])
    assert names(join_moves(module)) == ["nn.relu"]


def test_a_single_permutation_is_unchanged() -> None:
    module = moving((2, 5, 24), [("reshape", (2, 5, 3, 8)), ("permute", (0, 2, 1, 3))])
    assert names(join_moves(module)) == ["reshape", "permute_dims", "nn.relu"]


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_steps_keep_the_elements_positions(data: st.DataObject) -> None:
    factors = [2, 2, 3, 4, 1]
    shape = start = tuple(data.draw(st.permutations(factors)))
    steps: list[tuple[str, Step]] = []
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            axes = tuple(data.draw(st.permutations(range(len(shape)))))
            steps, shape = [*steps, ("permute", axes)], tuple(shape[axis] for axis in axes)
        else:
            shape = data.draw(st.sampled_from([(48,), (6, 8), (16, 3), (2, 2, 12), (4, 1, 12), (3, 4, 4), (2, 24)]))
            steps.append(("reshape", shape))
    shown = data.draw(st.lists(st.integers(0, len(steps) - 1), unique=True, max_size=2))
    module = moving(start, steps, shown=shown)
    joined = join_moves(module)
    agree(module, joined, start)
    agree(module, move_transposes(joined), start)
