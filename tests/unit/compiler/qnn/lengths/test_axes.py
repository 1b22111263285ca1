from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.lengths.axes import Unbound, length_axes
from tests.support.qnn_models import Emit, module_of


def _module(length: int, *, width: int = 3, other: int | None = None, flips: bool = False) -> tvm.IRModule:
    def network(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        scores = emit(relax.op.matmul(inputs[0], emit(relax.op.permute_dims(inputs[1], [0, 2, 1]))))
        return [emit(relax.op.flip(scores, 0)) if flips else emit(relax.op.abs(scores))]

    return module_of([((1, length, width), "float32"), ((1, other or length, width), "float32")], network)


def test_axes_with_the_length_are_found_by_comparing_two_lengths() -> None:
    module = _module(5)
    lengths = length_axes(module, _module(4))
    first, _ = graph.main_of(module).params
    assert (lengths.length, lengths.axes[first]) == (5, (1,))
    moved, scores, *_ = (var for var, _ in graph.bindings(graph.main_of(module)))
    assert (lengths.axes[moved], lengths.axes[scores]) == ((2,), (1, 2))
    assert lengths.of(relax.const(np.zeros((5, 2, 5)))) == (0, 2)


def test_an_equal_size_is_not_the_length() -> None:
    module = _module(5, width=5)
    assert length_axes(module, _module(4, width=5)).axes[graph.main_of(module).params[0]] == (1,)


@pytest.mark.parametrize(
    ("shorter", "why"),
    [
        (_module(5), "0 sizes of the inputs vary"),
        (_module(4, other=3), "2 sizes of the inputs vary"),
        (_module(4, flips=True), "has another operator at another length"),
    ],
)
def test_modules_that_differ_in_more_than_the_length_are_refused(shorter: tvm.IRModule, why: str) -> None:
    with pytest.raises(Unbound, match=why):
        length_axes(_module(5), shorter)
