"""If a kernel declines an operator, at whichever step, generated code computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.libraries import library_for
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import InvalidQuantizedType, QuantizedType, accumulator_type
from service.compiler.select.select import select
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import InternalError
from tests.support.qnn_models import Emit, float32, module_of
from tests.support.selected import RUNNING, run_selected

import tvm  # isort: skip

TARGET, MODE = RUNNING[-1], get_mode(ONNXRUNTIME)


def layers() -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Returns a module with two dense layers, one after the other, and its inputs."""
    rng = np.random.default_rng(0)
    act = QuantizedType("uint8", (float32(0.05),), (120,))
    kind = QuantizedType("int8", (float32(0.02),))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = inputs[0]
        for _ in range(2):
            weights = relax.const(rng.integers(-127, 128, (32, 32)).astype(np.int8))
            sums = emit(ops.dense(x, weights, None, act, kind))
            x = emit(ops.requantize(sums, accumulator_type(act, kind, 1), act))
        return x

    return module_of([((5, 32), "uint8")], body), [rng.integers(0, 256, (5, 32)).astype(np.uint8)]


def failing(error: Exception, method: str, calls: int) -> Callable[..., Any]:
    """Returns a function that returns a library whose `method` raises `error` on its first `calls` calls."""
    library = library_for(TARGET, MODE)
    assert library is not None
    inner, left = getattr(library, method), [calls]

    def fail(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return inner(*arguments, **options)

    setattr(library, method, fail)
    return lambda mode: library


@pytest.mark.parametrize("method", ["demands", "kernel"])
@pytest.mark.parametrize("error", [Declined("not this one"), InvalidQuantizedType("not this one")])
def test_a_kernel_that_declines_is_replaced_by_generated_code(method: str, error: Exception, tmp_path: Path) -> None:
    module, inputs = layers()
    selection, (actual,) = run_selected(module, TARGET, ONNXRUNTIME, inputs, tmp_path, failing(error, method, 1))
    np.testing.assert_array_equal(actual, oracle.run(module, MODE, inputs)[0])
    assert [(each["operators"], each["reason"]) for each in selection.plain if each["operators"] == "dense"] == [
        ("dense", "not this one")
    ]


@pytest.mark.parametrize("method", ["demands", "kernel"])
def test_a_defect_of_a_kernel_names_the_operator(method: str) -> None:
    module, _ = layers()
    with pytest.raises(InternalError, match="ZeroDivisionError: by zero") as caught:
        select(module, failing(ZeroDivisionError("by zero"), method, 1)(MODE))
    assert caught.value.op == "qnn.dense"
    assert caught.value.tensor
