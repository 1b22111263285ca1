"""Layers of stored values that ONNX Runtime computes in float32 after it has rounded their operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
Write = Callable[[OnnxBuilder, str], str]
RNG = np.random.default_rng(3)


def stored(model: OnnxBuilder, values: object, dtype: str) -> str:
    return model.nibbles(values, dtype) if dtype.endswith("4") else model.constant(values, dtype)


def pair(model: OnnxBuilder, x: str, dtype: str) -> str:
    low, high = RANGES[dtype]
    names = [model.constant(6 / (high - low), "float32"), stored(model, np.array((low + high + 1) // 2), dtype)]
    return model.node("DequantizeLinear", [model.node("QuantizeLinear", [x, *names]), *names])


def weights(model: OnnxBuilder, shape: tuple[int, ...], axis: int | None, dtype: str) -> str:
    if dtype == "float32":
        return model.constant(RNG.standard_normal(shape) / 4, "float32")
    low, high = RANGES[dtype]
    scales = RNG.uniform(0.5, 1, () if axis is None else shape[axis]) * 2 / (high - low)
    names = [stored(model, RNG.integers(low, high + 1, shape), dtype), model.constant(scales, "float32")]
    return model.node("DequantizeLinear", names, axis=axis or 0)


def bias(model: OnnxBuilder, count: int) -> str:
    return model.constant(RNG.standard_normal(count), "float32")


def conv(dtype: str, axis: int | None = 0) -> Write:
    return lambda m, x: m.node("Conv", [x, weights(m, (5, 4, 3, 3), axis, dtype), bias(m, 5)])


def conv_transpose(dtype: str, axis: int | None = 1) -> Write:
    return lambda m, x: m.node("ConvTranspose", [x, weights(m, (4, 5, 3, 3), axis, dtype), bias(m, 5)])


def gemm(dtype: str, transposed: int, activation: str = "") -> Write:
    def write(model: OnnxBuilder, x: str) -> str:
        shape, axis = ((6, 8), 0) if transposed else ((8, 6), 1)
        y = model.node("Gemm", [x, weights(model, shape, axis, dtype), bias(model, 6)], transB=transposed)
        return model.node(activation, [y]) if activation else y

    return write


def matmul_add(dtype: str, activation: str = "") -> Write:
    def write(model: OnnxBuilder, x: str) -> str:
        product = model.node("MatMul", [x, weights(model, (8, 6), 1, dtype)])
        y = model.node("Add", [product, bias(model, 6)])
        return model.node(activation, [y]) if activation else y

    return write


IMAGE, MATRIX, BATCH = (1, 4, 6, 6), (9, 8), (2, 9, 8)
# name -> shape of the input, types of input and output, writer
CASES: dict[str, tuple[tuple[int, ...], str, str, Write]] = {
    "Conv of 16 bits": (IMAGE, "int16", "int8", conv("int8")),
    "Conv with weights of 4 bits": (IMAGE, "uint8", "uint8", conv("int4")),
    "Conv with real weights": (IMAGE, "int16", "int8", conv("float32")),
    "ConvTranspose with weights of 4 bits": (IMAGE, "int8", "int8", conv_transpose("uint4")),
    "ConvTranspose with one scale": (IMAGE, "int8", "int8", conv_transpose("int4", None)),
    "Gemm with weights of 4 bits": (MATRIX, "uint8", "uint8", gemm("int4", 1)),
    "Gemm of 4 bits": (MATRIX, "int4", "int4", gemm("int4", 0)),
    "Gemm with an activation": (MATRIX, "int16", "uint8", gemm("int8", 1, "Relu")),
    "MatMul and Add": (MATRIX, "uint8", "uint8", matmul_add("int4")),
    "MatMul and Add of 4 bits": (MATRIX, "uint4", "uint4", matmul_add("int8", "Relu")),
    "MatMul and Add in batches": (BATCH, "uint8", "uint8", matmul_add("uint4")),
    "MatMul and Add in batches with an activation": (BATCH, "uint8", "uint8", matmul_add("int4", "Relu")),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str) -> None:
    shape, before, after, write = CASES[name]
    model = OnnxBuilder()
    y = write(model, pair(model, model.input("x", "float32", shape), before))
    model.output(pair(model, y, after), "float32")
    check(model, shape)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int16"])
def test_relu_before_4_bits_is_removed_as_onnx_runtime_does(dtype: str) -> None:
    model = OnnxBuilder()
    x = pair(model, model.input("x", "float32", MATRIX), dtype)
    model.output(pair(model, model.node("Relu", [x]), dtype), "float32")
    notices = check(model, MATRIX)
    assert len(notices) == (dtype != "int16")
    assert all("removes Relu" in each for each in notices)


def check(model: OnnxBuilder, shape: tuple[int, ...]) -> tuple[str, ...]:
    file, given = model.build(21), [RNG.standard_normal(shape).astype(np.float32)]
    imported = import_model(file)
    (expected,) = Reference(file, optimized=True)(given)
    (actual,) = oracle.run(imported.module, get_mode(ONNXRUNTIME), given)
    np.testing.assert_array_equal(actual, expected)
    return imported.notices
