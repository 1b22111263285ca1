"""float16 graphs round where ONNX Runtime rounds: the oracle's results equal ONNX Runtime's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import DTYPES, OnnxBuilder
from tests.support.onnx_reference import Reference

HALF, FLOAT = DTYPES["float16"], DTYPES["float32"]
RNG = np.random.default_rng(3)
Write = Callable[[OnnxBuilder, str], str]


def half(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float16)


def check(data: bytes, inputs: list[np.ndarray]) -> None:
    expected = Reference(data, optimized=True)(inputs)
    results = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), inputs)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)


def dense(b: OnnxBuilder, x: str, size: int = 8) -> str:
    return b.node("Add", [b.node("MatMul", [x, b.constant(half(size, size))]), b.constant(half(size))])


def chain(b: OnnxBuilder, x: str) -> str:
    """None of these has a float16 kernel, so that only the last result is rounded."""
    return b.node("Mul", [b.node("Tanh", [b.node("Exp", [x])]), x])


def one_move(b: OnnxBuilder, x: str) -> str:
    """A Transpose between such operators computes in float32, too."""
    return b.node("Exp", [b.node("Transpose", [b.node("Exp", [x])], perm=[0, 2, 1])])


def two_moves(b: OnnxBuilder, x: str) -> str:
    """Two operators with float16 kernels next to each other compute in float16."""
    moved = b.node("Transpose", [b.node("Exp", [x])], perm=[0, 2, 1])
    return b.node("Exp", [b.node("Slice", [moved, *(b.constant([each]) for each in (1, 3, 1))])])


def clipped(b: OnnxBuilder, x: str) -> str:
    low, high = b.constant(np.float16(0.1)), b.constant(np.float16(0.7))
    return b.node("Exp", [b.node("Clip", [b.node("Clip", [b.node("Tanh", [x]), low, ""]), "", high])])


def concatenated(b: OnnxBuilder, x: str) -> str:
    y = b.node("Exp", [x])
    return b.node("Mul", [joined := b.node("Concat", [y, x], axis=1), joined])


def explicit_casts(b: OnnxBuilder, x: str) -> str:
    real = b.node("Cast", [b.node("Mul", [x, x])], to=FLOAT)
    narrow = b.node("Cast", [b.node("Exp", [b.node("Neg", [real])])], to=HALF)
    return b.node("Mul", [narrow, x])


def cast_and_back(b: OnnxBuilder, x: str) -> str:
    """The file's own casts back to float32 keep a rounding that inserted casts would not."""
    real = b.node("Exp", [b.node("Cast", [x], to=FLOAT)])
    narrow = b.node("Cast", [real], to=HALF)
    wide = b.node("Cast", [b.node("Exp", [b.node("Cast", [narrow], to=FLOAT)])], to=HALF)
    return b.node("Add", [narrow, wide])


def normalized(b: OnnxBuilder, x: str) -> str:
    normal = b.node("LayerNormalization", [x, b.constant(half(8)), b.constant(half(8))], axis=-1)
    return b.node("Exp", [b.node("Reshape", [normal, b.constant([1, 8, 4])])])


def attention(b: OnnxBuilder, x: str) -> str:
    heads = b.node("Reshape", [dense(b, x), b.constant([1, 4, 2, 4])])
    query, key = (b.node("Transpose", [heads], perm=order) for order in ([0, 2, 1, 3], [0, 2, 3, 1]))
    scores = b.node("Div", [b.node("MatMul", [query, key]), b.constant(np.float16(2))])
    mixed = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), query])
    joined = b.node("Reshape", [b.node("Transpose", [mixed], perm=[0, 2, 1, 3]), b.constant([1, 4, 8])])
    return b.node("Add", [dense(b, joined), x])


CASES: dict[str, Write] = {
    each.__name__: each
    for each in (
        *(chain, one_move, two_moves, clipped, concatenated, explicit_casts, cast_and_back, normalized, attention),
        dense,
    )
}


@pytest.mark.parametrize("casts_ends", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_graph_equals_onnx_runtime(case: str, casts_ends: bool) -> None:
    """With `casts_ends`, the graph's input and output are float32, as `convert_float_to_float16(keep_io_types=True)`
    leaves them.
    """
    b = OnnxBuilder()
    dtype = "float32" if casts_ends else "float16"
    x = b.input("x", dtype, [1, 4, 8])
    y = CASES[case](b, b.node("Cast", [x], to=HALF) if casts_ends else x)
    if casts_ends:
        b.node("Cast", [y], ["y"], to=FLOAT)
    else:
        b.node("Identity", [y], ["y"])
    b.output("y", dtype)
    check(b.build(), [RNG.normal(size=(1, 4, 8)).astype(dtype)])


def test_an_output_that_is_also_read_is_rounded_for_the_caller_only() -> None:
    b = OnnxBuilder()
    b.node("Exp", [b.node("Exp", [b.input("x", "float16", [4])], ["y"])], ["z"])
    b.output("y", "float16")
    b.output("z", "float16")
    b.output("x", "float16")
    check(b.build(), [half(4)])


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "uint8"])
def test_casts_to_and_from_other_types(dtype: str) -> None:
    b = OnnxBuilder()
    x = b.node("Cast", [b.input("x", dtype, [2, 3])], to=HALF)
    y = b.node("Exp", [x])
    b.node("Cast", [b.node("Clip", [y, b.constant(np.float16(0)), b.constant(np.float16(9))])], ["z"], to=DTYPES[dtype])
    b.output("z", dtype)
    b.node("Identity", [x], ["t"])
    b.output("t", "float16")
    check(b.build(), [np.array([[0, 1, 1], [1, 0, 0]], dtype)])


def test_both_branches_of_an_if_compute_on_its_captures() -> None:
    then, otherwise = OnnxBuilder(), OnnxBuilder()
    then.node("Exp", ["e"], ["t"])
    then.output("t", "float16")
    otherwise.node("Neg", ["e"], ["o"])
    otherwise.output("o", "float16")
    b = OnnxBuilder()
    b.node("Exp", [b.input("x", "float16", [4])], ["e"])
    condition = b.node("Equal", [b.node("Size", ["e"]), b.constant(np.int64(4))])
    b.node("If", [condition], ["i"], then_branch=then.graph(), else_branch=otherwise.graph())
    b.node("Neg", ["i"], ["y"])
    b.output("y", "float16")
    check(b.build(), [half(4)])


def test_a_graph_without_halves_is_unchanged() -> None:
    b = OnnxBuilder()
    b.node("Exp", [b.input("x", "float32", [4])], ["y"])
    b.output("y", "float32")
    assert "float16" not in str(import_model(b.build()).module)


def test_bfloat16_rounds_after_each_operator() -> None:
    import ml_dtypes

    b = OnnxBuilder()
    x = b.node("Cast", [b.input("x", "float32", [8])], to=DTYPES["bfloat16"])
    b.node("Cast", [b.node("Mul", [x, b.constant(np.full(1, 3, ml_dtypes.bfloat16))])], ["y"], to=FLOAT)
    b.output("y", "float32")
    value = RNG.normal(size=8).astype(np.float32)
    (result,) = oracle.run(import_model(b.build()).module, get_mode(ONNXRUNTIME), [value])
    product = value.astype(ml_dtypes.bfloat16) * ml_dtypes.bfloat16(3)
    np.testing.assert_array_equal(result, product.astype(np.float32))
