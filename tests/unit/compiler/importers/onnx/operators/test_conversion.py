"""QuantizeLinear and DequantizeLinear of activations along axes and in blocks, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import detect_host
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected

SHAPE = (2, 6, 5)
RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def pair(model: OnnxBuilder, x: str, dtype: str, axis: int, block: int, shape: tuple[int, ...] = SHAPE) -> str:
    """Writes a QuantizeLinear and a DequantizeLinear with several scales; block 0 means a scale for each index."""
    rng, (low, high) = np.random.default_rng(axis), RANGES[dtype]
    grid: Any = (
        [-(-size // block) if each == axis else size for each, size in enumerate(shape)] if block else shape[axis]
    )
    scales = rng.uniform(0.5, 1, grid) * 6 / (high - low)
    points = rng.integers(low, high + 1, np.shape(scales))
    stored = model.nibbles(points, dtype) if dtype.endswith("4") else model.constant(points, dtype)
    names = [model.constant(scales, "float32"), stored]
    options: dict[str, Any] = {"axis": axis, "block_size": block}
    return model.node("DequantizeLinear", [model.node("QuantizeLinear", [x, *names], **options), *names], **options)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("axis", "block"), [(1, 0), (2, 0), (1, 3), (1, 4), (2, 2), (0, 2)])
def test_values_are_those_of_onnx_runtime(dtype: str, axis: int, block: int) -> None:
    """A block of 4 does not divide 6 elements, and a block of 2 does not divide 5."""
    model = OnnxBuilder()
    model.output(pair(model, model.input("x", "float32", SHAPE), dtype, axis, block), "float32")
    check(model)


@pytest.mark.parametrize("operators", [["Relu"], ["Softmax"], ["Transpose"], []])
def test_operators_between_two_pairs_are_those_of_onnx_runtime(operators: list[str]) -> None:
    model = OnnxBuilder()
    y = pair(model, model.input("x", "float32", SHAPE), "int8", 1, 4)
    for operator in operators:
        y = model.node(operator, [y])
    shape = SHAPE[::-1] if operators == ["Transpose"] else SHAPE
    model.output(pair(model, y, "uint8", 2, 0, shape), "float32")
    check(model)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_two_pairs_are_merged_as_in_onnx_runtime(dtype: str) -> None:
    low, high = RANGES[dtype]
    model = OnnxBuilder()
    y = model.input("x", "float32", SHAPE)
    for width in (5.0, 7.3):
        parameters = model.quantization(width / (high - low), (low + high + 1) // 2, dtype)
        y = model.node("DequantizeLinear", [model.node("QuantizeLinear", [y, *parameters]), *parameters])
    model.output(y, "float32")
    check(model)


@pytest.mark.parametrize("point", [-5000, 5000])
def test_blocks_before_the_last_axis_wrap_around_beyond_32_bits(point: int, tmp_path: Any) -> None:
    model = OnnxBuilder()
    parameters = model.quantization(np.full((2, 3), 1e-4), np.full((2, 3), point), "int16")
    stored = model.node("QuantizeLinear", [model.input("x", "float32", (4, 3)), *parameters], axis=0, block_size=2)
    model.output(stored, "int16")
    file, given = model.build(21), [np.array([[1e6, -1e6, 3], [2e5, -2e5, 0.5]] * 2, np.float32)]
    (expected,) = Reference(file, optimized=True)(given)
    module = import_model(file).module
    np.testing.assert_array_equal(oracle.run(module, get_mode(ONNXRUNTIME), given)[0], expected)
    _, (compiled,) = run_selected(module, detect_host().target, ONNXRUNTIME, given, tmp_path)
    np.testing.assert_array_equal(compiled, expected)


def test_constants_of_4_bits_keep_their_type_when_they_are_moved() -> None:
    rng, model = np.random.default_rng(0), OnnxBuilder()
    names = [model.constant(0.3, "float32"), model.nibbles(np.array(5), "uint4")]
    stored = model.node("QuantizeLinear", [model.constant(rng.standard_normal((6, 5)), "float32"), *names])
    weights = model.node("DequantizeLinear", [model.node("Transpose", [stored]), *names])
    model.output(model.node("Add", [model.input("x", "float32", (5, 6)), weights]), "float32")
    check(model, (5, 6))


def check(model: OnnxBuilder, shape: tuple[int, ...] = SHAPE) -> None:
    file, given = model.build(21), [np.random.default_rng(0).normal(0, 2, shape).astype(np.float32)]
    (expected,) = Reference(file, optimized=True)(given)
    (actual,) = oracle.run(import_model(file).module, get_mode(ONNXRUNTIME), given)
    np.testing.assert_array_equal(actual, expected)
