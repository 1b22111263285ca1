"""The kernels of regions leave out columns beyond the length, if nothing reads them and they change no reduction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.rows import Region
from service.compiler.qnn import graph, ops
from service.compiler.qnn.lengths.unread import UnreadAxes
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.real import LANES
from service.compiler.select.columns import leaves_out_columns
from service.compiler.select.groups import Model
from service.compiler.select.rows import in_regions
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import Target, detect_host
from tests.support.bounded import check_lengths, of_lengths
from tests.support.qnn_models import Emit, module_of

LONG = 37


def filled(emit: Emit, x: relax.Expr, length: relax.Expr | None, value: float, count: int = LONG) -> relax.Expr:
    """Replaces the columns of `x` beyond the length by `value`."""
    if length is None:
        return x
    inside = emit(relax.op.less(relax.const(np.arange(count, dtype=np.int32)), length))
    return emit(relax.op.where(inside, x, relax.const(value, "float32")))


def softmax(
    emit: Emit, x: relax.Var, length: relax.Expr | None, lowest: float = -np.inf, zero: float = 0.0
) -> relax.Var:
    axis, count = len(x.ty.shape) - 1, int(x.ty.shape[-1])
    largest = emit(relax.op.max(filled(emit, x, length, lowest, count), axis=[axis], keepdims=True))
    powers = emit(ops.real_function("exp", emit(relax.op.subtract(x, largest))))
    total = emit(ops.real_sum(filled(emit, powers, length, zero, count), axes=[axis], order=LANES))
    return emit(relax.op.divide(powers, total))


LENGTHS = {LONG: range(1, LONG + 1), 64: (64, 1, 15, 16, 17, 48, 63), 9: range(1, 10)}


@pytest.mark.parametrize(("target", "longest"), of_lengths(LENGTHS))
def test_a_softmax_equals_that_of_a_model_for_its_length(target: Target, longest: int, tmp_path: Path) -> None:
    kernels = check_lengths(
        lambda emit, inputs, length: softmax(emit, inputs[0], length),
        [((3, -1, -1), "float32")], longest, LENGTHS[longest], target, tmp_path,
    )  # fmt: skip
    assert kernels == ["rows"]


def _filled_by(lowest: float, zero: float) -> object:
    return lambda emit, x, length: softmax(emit, x, length, lowest, zero)


def _returns_the_filled_values(emit: Emit, x: relax.Var, length: relax.Expr) -> list[relax.Var]:
    """Another model may read the values beyond the length, which are defined."""
    inside = filled(emit, emit(relax.op.abs(x)), length, -np.inf)
    return [emit(relax.op.negative(inside)), emit(relax.op.max(inside, axis=[1], keepdims=True))]


@pytest.mark.parametrize(
    ("network", "leaves_out"),
    [
        pytest.param(_filled_by(-np.inf, 0.0), True, id="softmax"),
        pytest.param(_filled_by(-1e9, 0.0), False, id="a maximum of other numbers"),
        pytest.param(_filled_by(-np.inf, 1.0), False, id="a sum of other numbers"),
        pytest.param(lambda emit, x, _length: softmax(emit, x, None), False, id="a sum of all columns"),
        pytest.param(_returns_the_filled_values, False, id="columns that are read"),
        pytest.param(
            lambda emit, x, _length: emit(relax.op.abs(emit(relax.op.negative(x)))), True, id="without reductions"
        ),
    ],
)
def test_only_columns_without_effect_are_left_out(network: object, leaves_out: bool) -> None:
    module = module_of(
        [((6, LONG), "float32"), ((1,), "int32")],
        lambda emit, inputs: network(emit, *inputs),  # type: ignore[operator]
    )
    (region,), unread = _regions(module)
    assert leaves_out_columns(region, unread) == leaves_out


def test_rows_of_another_axis_are_complete() -> None:
    module = module_of(
        [((LONG, 6), "float32"), ((1,), "int32")],
        lambda emit, inputs: emit(relax.op.abs(emit(relax.op.negative(inputs[0])))),
    )
    (region,), unread = _regions(module, axis=0)
    assert not leaves_out_columns(region, unread)


def _regions(module: tvm.IRModule, axis: int = 1) -> tuple[list[Region], UnreadAxes]:
    library = library_for(detect_host().target, get_mode(ONNXRUNTIME))
    assert library is not None
    model = Model(graph.main_of(module), library.block)
    function, regions = in_regions(model.function, library.check_row_operator, model.taken)
    return list(regions), UnreadAxes(function, [(axis,)])
