"""Loops with a known number of iterations are unrolled, and give ONNX Runtime's values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import Unsupported
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

RNG = np.random.default_rng(0)


def check(b: OnnxBuilder, inputs: Sequence[np.ndarray], opset: int = 17) -> None:
    data = b.build(opset)
    expected = Reference(data, optimized=True)(inputs)
    results = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), list(inputs))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert result.dtype == wanted.dtype


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def body(dtype: str = "float32", *, until: int | None = None) -> OnnxBuilder:
    """Returns v, v * w + iteration, with the weights in the body, and an additional output for each iteration."""
    b = OnnxBuilder()
    b.input("i", "int64", [])
    b.input("go", "bool", [])
    b.input("v", dtype, [3])
    weights = b.constant(np.array([1, -2, 0.5], dtype))
    step = b.node("Cast", ["i"], to={"float32": 1, "float16": 10}[dtype])
    if until is None:
        b.node("Identity", ["go"], ["again"])
    else:
        b.node("Less", ["i", b.constant(np.int64(until))], ["again"])
    b.node("Add", [b.node("Mul", ["v", weights]), step], ["next"])
    b.node("Mul", ["next", "outer"], ["row"])
    for name in ("again", "next", "row"):
        b.output(name, "bool" if name == "again" else dtype)
    return b


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("count", "until"), [(3, None), (5, 1), (None, 2)])
def test_a_loop(count: int | None, until: int | None, dtype: str) -> None:
    b = OnnxBuilder()
    b.node("Neg", [b.input("x", dtype, [3])], ["outer"])
    times = "" if count is None else b.constant(np.int64(count))
    b.node("Loop", [times, b.constant(np.array(True)), "x"], ["last", "rows"], body=body(dtype, until=until).graph())
    b.output("last", dtype)
    b.output("rows", dtype)
    check(b, [real(3).astype(dtype)])


def test_a_loop_whose_length_is_a_dimension() -> None:
    b = OnnxBuilder()
    b.node("Neg", [b.input("x", "float32", [3])], ["outer"])
    times = b.node("Gather", [b.node("Shape", ["x"], ["shape"]), b.constant(np.int64(0))], ["times"])
    b.node("Loop", [times, b.constant(np.array(True)), "x"], ["last", "rows"], body=body().graph())
    b.output("rows", "float32")
    check(b, [real(3)])


def test_a_loop_without_iterations_returns_its_input() -> None:
    b = OnnxBuilder()
    b.node("Neg", [b.input("x", "float32", [3])], ["outer"])
    b.node("Loop", [b.constant(np.int64(0)), b.constant(np.array(True)), "x"], ["last", "rows"], body=body().graph())
    b.output("last", "float32")
    check(b, [real(3)])


def scan(axis: int = 0, *, reverse: int = 0, out_axis: int = 0) -> tuple[OnnxBuilder, dict[str, list[int]]]:
    b = OnnxBuilder()
    b.input("state", "float32", [3])
    b.input("part", "float32", [3])
    b.node("Add", ["state", "part"], ["total"])
    b.node("Mul", ["total", b.constant(np.float32(2))], ["row"])
    b.output("total", "float32")
    b.output("row", "float32")
    options = {
        "scan_input_axes": [axis],
        "scan_input_directions": [reverse],
        "scan_output_axes": [out_axis],
        "scan_output_directions": [reverse],
    }
    return b, options


@pytest.mark.parametrize(("axis", "reverse", "out_axis"), [(0, 0, 0), (1, 0, 1), (0, 1, -1), (-1, 1, 0)])
def test_a_scan(axis: int, reverse: int, out_axis: int) -> None:
    inner, options = scan(axis, reverse=reverse, out_axis=out_axis)
    b = OnnxBuilder()
    b.input("first", "float32", [3])
    b.input("x", "float32", [4, 3] if axis == 0 else [3, 4])
    b.node("Scan", ["first", "x"], ["last", "rows"], body=inner.graph(), num_scan_inputs=1, **options)  # type: ignore[arg-type]
    b.output("last", "float32")
    b.output("rows", "float32")
    check(b, [real(3), real(4, 3) if axis == 0 else real(3, 4)])


def test_a_loop_in_a_loop() -> None:
    inner = OnnxBuilder()
    for name, dtype in (("j", "int64"), ("on", "bool"), ("u", "float32")):
        inner.input(name, dtype, [3] if name == "u" else [])
    inner.node("Identity", ["on"], ["still"])
    inner.node("Add", ["u", "v"], ["w"])
    inner.output("still", "bool")
    inner.output("w", "float32")
    outer = OnnxBuilder()
    for name, dtype in (("i", "int64"), ("go", "bool"), ("v", "float32")):
        outer.input(name, dtype, [3] if name == "v" else [])
    outer.node("Identity", ["go"], ["again"])
    outer.node("Loop", [outer.constant(np.int64(2)), "", "v"], ["next"], body=inner.graph())
    outer.output("again", "bool")
    outer.output("next", "float32")
    b = OnnxBuilder()
    b.node("Loop", [b.constant(np.int64(3)), "", b.input("x", "float32", [3])], ["y"], body=outer.graph())
    b.output("y", "float32")
    check(b, [real(3)])


def test_a_number_of_iterations_from_an_input_is_refused() -> None:
    b = OnnxBuilder()
    b.node("Neg", [b.input("x", "float32", [3])], ["outer"])
    b.node("Loop", [b.input("n", "int64", []), "", "x"], ["last", ""], body=body().graph())
    b.output("last", "float32")
    with pytest.raises(Unsupported, match="Loop #1 repeats as often as n says, which is computed at run time"):
        import_model(b.build())


def test_too_many_iterations_are_refused() -> None:
    b = OnnxBuilder()
    b.node("Neg", [b.input("x", "float32", [3])], ["outer"])
    b.node("Loop", [b.constant(np.int64(1 << 40)), "", "x"], ["last", ""], body=body(until=None).graph())
    b.output("last", "float32")
    with pytest.raises(Unsupported, match="Loop #1 has more than 20000 operators in all of its iterations"):
        import_model(b.build())


def halving(*, has_rows: bool = False) -> OnnxBuilder:
    """Returns the body: v / 2 and total + v, until the largest element is at most 1."""
    b = OnnxBuilder()
    b.input("i", "int64", [])
    b.input("go", "bool", [])
    b.input("v", "float32", [3])
    b.input("total", "float32", [3])
    b.node("Mul", ["v", b.constant(np.float32(0.5))], ["half"])
    b.node("Add", ["total", "v"], ["sum"])
    largest = b.node("ReduceMax", ["half"], keepdims=0)
    b.node("Greater", [largest, b.constant(np.float32(1))], ["again"])
    for name in ("again", "half", "sum", *(["half"] if has_rows else [])):
        b.output(name, "bool" if name == "again" else "float32")
    return b


def computed_loop(count: int | None, *, limited: bool = True, has_rows: bool = False) -> OnnxBuilder:
    """Returns a loop with a condition that is computed at run time, and a constant largest number of iterations; or
    with a number of iterations that is computed at run time, limited to 6, if `count` is None.
    """
    b = OnnxBuilder()
    b.input("x", "float32", [3])
    times = b.constant(np.int64(0 if count is None else count))
    if count is None:
        b.input("n", "int64", [1])
        given = b.node("Min", ["n", b.constant([6], "int64")]) if limited else "n"
        times = b.node("Squeeze", [given, b.constant([0], "int64")])
    zeros = b.constant(np.zeros(3, np.float32))
    outputs = ["last", "total", *(["rows"] if has_rows else [])]
    start = b.constant(np.array(True))
    b.node("Loop", [times, start, "x", zeros], outputs, body=halving(has_rows=has_rows).graph())
    b.output("last", "float32")
    b.output("total", "float32")
    return b


@pytest.mark.parametrize("largest", [0.5, 3.0, 9.0, 1000.0])
def test_a_condition_that_is_computed_at_run_time(largest: float) -> None:
    check(computed_loop(7), [np.array([0.25, largest, -1], np.float32)])


@pytest.mark.parametrize("times", [-1, 0, 1, 3, 6, 9])
def test_a_number_of_iterations_that_is_computed_at_run_time(times: int) -> None:
    check(computed_loop(None), [np.array([0.25, 20, -1], np.float32), np.array([times], np.int64)])


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (computed_loop(None, limited=False), "repeats as often as .*, which is computed at run time"),
        (computed_loop(7, has_rows=True), "collects the results of a number of iterations that is computed at run"),
        (computed_loop(10**7), "has more than 20000 operators in all of its iterations"),
    ],
)
def test_a_loop_without_a_bound_is_refused(loop: OnnxBuilder, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        import_model(loop.build(17))
