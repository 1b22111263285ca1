"""The pass keeps the names of LiteRT's own kernels only in modes that have formulas for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops
from service.compiler.qnn.graph import main_of, operations
from service.compiler.qnn.kernels import choose_kernels
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.builtin import CHANNELS, ELEMENTS, GEMM, REFERENCE, with_builtin
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.qnn_models import module_of

IN, OUT = QuantizedType("int8", (0.5,), (3,)), QuantizedType("uint8", (0.7,), (120,))


def requantization(kernel: str) -> tvm.IRModule:
    def body(emit: Callable[[relax.Call], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        return emit(with_builtin(ops.requantize(inputs[0], IN, OUT), kernel, elements=10))

    return module_of([((2, 5), "int8")], body)


def found(module: tvm.IRModule) -> tuple[str, str | None]:
    """Returns the name of the only operation, and the name of its kernel."""
    (operation,) = [operation for _, _, operation in operations(main_of(module)) if operation is not None]
    return operation.name, operation.builtin


@pytest.mark.parametrize("kernel", [CHANNELS, ELEMENTS, GEMM, REFERENCE])
def test_a_mode_without_a_formula_for_a_kernel_has_the_plain_operation(kernel: str) -> None:
    module = choose_kernels(requantization(kernel), get_mode(LITERT_REFERENCE))
    assert found(module) == ("qnn.requantize", None)


@pytest.mark.parametrize("kernel", [GEMM, REFERENCE])
def test_a_kernel_that_rounds_every_element_alike_stays_a_requantization(kernel: str) -> None:
    assert found(choose_kernels(requantization(kernel), get_mode(XNNPACK))) == ("qnn.requantize", kernel)


@pytest.mark.parametrize("kernel", [CHANNELS, ELEMENTS])
def test_a_kernel_that_rounds_by_position_becomes_an_operator_that_no_pass_moves(kernel: str) -> None:
    assert found(choose_kernels(requantization(kernel), get_mode(XNNPACK))) == ("qnn.vector_requantize", kernel)
