"""Sums of products with fused multiply-adds: the oracle is compared with fmaf of the C library, and generated code with
the oracle.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from service.compiler.kernels.group import Group, PlainKernel
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.portable import PortableIsa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.scaling.fused import fma, sums_of_products
from service.compiler.qnn.operation import IllTyped
from service.core.target import TARGETS, detect_host
from tests.support.qnn_models import Emit, module_of
from tests.support.selected import run_selected

import tvm  # isort: skip

Real = NDArray[np.float32]
Shape = tuple[int, ...]

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
LIBM.fmaf.restype, LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
RNG = np.random.default_rng(0)
# Types of values: ordinary ones, those with subnormal sums, large ones that overflow, ties, infinities.
KINDS: dict[str, Callable[[Shape], NDArray[Any]]] = {
    "ordinary": lambda shape: RNG.standard_normal(shape),
    "subnormal": lambda shape: RNG.standard_normal(shape) * 10.0 ** RNG.integers(-30, -15, shape),
    "huge": lambda shape: RNG.standard_normal(shape) * 10.0 ** RNG.integers(10, 20, shape),
    "halfway": lambda shape: RNG.integers(-9, 9, shape) * 2.0 ** RNG.integers(-15, 12, shape),
    "infinite": lambda shape: np.where(RNG.random(shape) < 0.05, np.inf, RNG.standard_normal(shape)),
    "any bits": lambda shape: RNG.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.float32),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_added_as_in_libm(kind: str) -> None:
    a, b = (KINDS[kind](shape).astype(np.float32) for shape in ((6, 30), (30, 9)))
    expected = np.zeros((6, 9), np.float32)
    for row, column in np.ndindex(expected.shape):
        for k in range(30):
            expected[row, column] = LIBM.fmaf(a[row, k], b[k, column], expected[row, column])
    np.testing.assert_array_equal(_product(a, b), expected)


def test_a_sum_that_is_rounded_to_halfway_is_rounded_once() -> None:
    """The sum is 1 + 2**-23 + 2**-24 - 2**-64. float64 loses the last term, and the rest is exactly halfway between two
    float32.
    """
    a, b = _real([[1 + 2**-23, 2**-12 * (1 + 2**-20)]]), _real([[1], [2**-12 * (1 - 2**-20)]])
    assert _product(a, b)[0, 0] == np.float32(1 + 2**-23)
    assert np.float32(np.float64(a[0, 0]) + np.float64(a[0, 1]) * np.float64(b[1, 0])) == np.float32(1 + 2**-22)


def test_a_subnormal_sum_is_rounded_once() -> None:
    """The sum is 2**-149 + 2**-150 - 2**-220. float64 loses the last term, and the rest is exactly halfway, as in the
    previous test."""
    a, b = _real([[2**-149, 2**-75 * (1 + 2**-23)]]), _real([[1], [2**-75 * (1 - 2**-23)]])
    assert _product(a, b)[0, 0] == fma(a[0, 1], b[1, 0], a[0, 0]) == np.float32(2**-149)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(40, 60, 700), (7, 60, 31), (700, 60, 3), (1, 60, 1), (3, 0, 5)], ids=str)
def test_many_sums_equal_the_definition(kind: str, shape: tuple[int, int, int]) -> None:
    """The sizes cover whole blocks of the library's loops, the elements after them, and exchanged operands."""
    rows, count, columns = shape
    a, b = (KINDS[kind](each).astype(np.float32) for each in ((rows, count), (count, columns)))
    expected = np.zeros((rows, columns), np.float32)
    for k in range(count):
        expected = fma(a[:, k : k + 1], b[k : k + 1], expected)
    np.testing.assert_array_equal(sums_of_products(a, b), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_are_multiplied_and_added_as_in_libm(kind: str) -> None:
    """The operands are one value, a row, a column, and elements that are not contiguous."""
    a, b, c = (KINDS[kind](shape).astype(np.float32) for shape in ((9, 21), (1, 21), (21, 9)))
    expected = [LIBM.fmaf(a[i, j], b[0, j], c[j, i]) for i, j in np.ndindex(9, 21)]
    np.testing.assert_array_equal(fma(a, b, c.T), np.array(expected, np.float32).reshape(9, 21))
    assert fma(a[0, 0], b[0, 0], c[0, 0]).tobytes() == fma(a[:1, :1], b[:1, :1], c[:1, :1]).tobytes()


def _real(values: list[list[float]]) -> Real:
    return np.array(values, np.float32)


def _product(a: Real, b: Real) -> Real:
    """Returns the oracle's result of a product."""
    module = module_of([], lambda emit, _: emit(ops.real_matmul(relax.const(a), relax.const(b))))
    return np.asarray(oracle.run(module, get_mode("onnxruntime"), [])[0])


def real(*shape: int) -> Real:
    return RNG.standard_normal(shape).astype(np.float32)


class _NoKernels(SimdLibrary):
    def __init__(self) -> None:
        super().__init__(PortableIsa(), get_mode("onnxruntime"))

    def plain(self, group: Group) -> PlainKernel:
        raise Declined("nothing has a kernel")


MATRICES: list[tuple[Shape, Shape]] = [
    ((2, 7, 33), (33, 40)),
    ((2, 3, 7, 20), (2, 3, 20, 9)),
    ((2, 3, 7, 20), (3, 20, 9)),
    ((5, 20), (3, 20, 1)),
]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("lhs", "rhs"), MATRICES, ids=str)
def test_the_canonical_form_of_a_matrix_product(lhs: Shape, rhs: Shape, biased: bool, tmp_path: Path) -> None:
    bias = relax.const(real(rhs[-1])) if biased else None
    module = module_of(
        [(lhs, "float32"), (rhs, "float32")], lambda emit, inputs: emit(ops.real_matmul(inputs[0], inputs[1], bias))
    )
    inputs = [real(*lhs), real(*rhs)]
    _same(module, inputs, tmp_path)
    expected = inputs[0].astype(np.float64) @ inputs[1]
    expected = expected if bias is None else expected + bias.value.numpy()
    np.testing.assert_allclose(oracle.run(module, get_mode("litert-reference"), inputs)[0], expected, atol=1e-4)


@pytest.mark.parametrize("has_kernel", [False, True])
@pytest.mark.parametrize("length", [1, 7, 20])
def test_a_product_with_a_length_adds_only_the_first_products(has_kernel: bool, length: int, tmp_path: Path) -> None:
    module = module_of(
        [((3, 5, 20), "float32"), ((20, 9), "float32"), ((1,), "int32")],
        lambda emit, inputs: emit(ops.real_matmul(inputs[0], inputs[1], length=inputs[2])),
    )
    lhs, rhs = real(3, 5, 20), real(20, 9)
    lhs[0, 0], rhs[:, 0] = -1e-30, 1e-30  # a sum of -0, which does not become 0
    lhs[..., length:] = np.nan
    inputs: list[Any] = [lhs, rhs, np.array([length], np.int32)]
    (expected,) = oracle.run(module, get_mode("onnxruntime"), inputs)
    np.testing.assert_array_equal(expected, _product(lhs[..., :length], rhs[:length]))
    library = None if has_kernel else lambda mode: _NoKernels()
    selection, (actual,) = run_selected(module, detect_host().target, "onnxruntime", inputs, tmp_path, library)
    np.testing.assert_array_equal(actual.view(np.int32), expected.view(np.int32))
    assert [layer["kernel"] for layer in selection.layers] == (["float_product"] if has_kernel else [])


CONVOLUTIONS: list[tuple[Shape, Shape, Shape, Shape, Shape, int]] = [
    ((1, 9, 10, 16), (24, 3, 3, 8), (2, 1), (1, 1, 1, 1), (1, 1), 2),
    ((1, 9, 10, 16), (16, 3, 3, 1), (1, 1), (1, 0, 1, 1), (1, 2), 16),
    ((2, 5, 6, 3), (20, 3, 3, 3), (1, 2), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_the_canonical_form_of_a_convolution(
    case: tuple[Shape, Shape, Shape, Shape, Shape, int], tmp_path: Path
) -> None:
    shape, kernel, strides, padding, dilation, groups = case
    weight, bias = relax.const(real(*kernel)), relax.const(real(kernel[0]))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(
            ops.real_conv2d(inputs[0], weight, bias, strides=strides, padding=padding, dilation=dilation, groups=groups)
        )

    _same(module_of([(shape, "float32")], body), [real(*shape)], tmp_path)


def _same(module: tvm.IRModule, inputs: list[Real], scratch: Path) -> None:
    """Compares generated code (without kernels) with the oracle."""
    target = next(target for target in TARGETS if target.runs_on(detect_host()))
    _, (actual,) = run_selected(module, target, "onnxruntime", inputs, scratch, lambda mode: _NoKernels())
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])


def test_operands_must_fit() -> None:
    def product(lhs: Shape, rhs: Shape, bias: Shape | None = None) -> None:
        added = relax.const(real(*bias)) if bias else None
        module_of([], lambda emit, _: emit(ops.real_matmul(relax.const(real(*lhs)), relax.const(real(*rhs)), added)))

    for operands, message in (
        (((2, 3), (4, 5)), "rows of 3 elements do not fit columns of 4"),
        (((2, 3), (3,)), "must be matrices"),
        (((2, 2, 3), (5, 3, 4)), "do not broadcast"),
        (((2, 3), (3, 4), (5,)), "the bias .* does not fit"),
    ):
        with pytest.raises(IllTyped, match=message):
            product(*operands)
    a, b, lengths = relax.const(real(2, 3)), relax.const(real(3, 4)), relax.const(np.ones(2, np.int32))
    with pytest.raises(IllTyped, match="the length must be one int32"):
        module_of([], lambda emit, _: emit(ops.real_matmul(a, b, length=lengths)))
