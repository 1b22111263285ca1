"""Compares models whose quantized form ONNX Runtime's optimizer writes with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import TARGETS, detect_host
from service.core.verification.vectors import sample_inputs
from tests.support.conformance import is_to_be_compiled
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected

HOST = [target for target in TARGETS if target.runs_on(detect_host()) and target.architecture == "x86_64"][-1]
MODE = get_mode(ONNXRUNTIME)
Rng = np.random.Generator
Write = Callable[[OnnxBuilder, Rng], Any]


def pair(model: OnnxBuilder, x: str, scale: float, zero_point: int, dtype: str = "uint8") -> str:
    """Adds a QuantizeLinear and a DequantizeLinear."""
    names = model.quantization(scale, zero_point, dtype)
    return model.node("DequantizeLinear", [model.node("QuantizeLinear", [x, *names]), *names])


def filters(model: OnnxBuilder, rng: Rng, shape: Sequence[int], axis: int, form: str, dtype: str = "int8") -> str:
    """Adds dequantized weights with one scale for each index of `axis`, in one of the forms that exporters write."""
    count = shape[axis]
    point = np.full(count, 0 if dtype == "int8" else 125, dtype)
    scale, zero_point = model.constant(rng.uniform(0.01, 0.03, count), "float32"), model.constant(point)
    bounds = np.iinfo(dtype)
    stored = rng.integers(bounds.min, bounds.max + 1, shape).astype(dtype)
    match form:
        case "pair":
            real = model.constant(rng.normal(0, 1, shape), "float32")
            stored_name = model.node("QuantizeLinear", [real, scale, zero_point], axis=axis)
            return model.node("DequantizeLinear", [stored_name, scale, zero_point], axis=axis)
        case "moved pair":
            real = model.node("Transpose", [model.constant(rng.normal(0, 1, shape[::-1]), "float32")])
            stored_name = model.node("QuantizeLinear", [real, scale, zero_point], axis=axis)
            return model.node("DequantizeLinear", [stored_name, scale, zero_point], axis=axis)
        case "transposed":
            names = [model.constant(np.ascontiguousarray(stored.T)), scale, zero_point]
            return model.node("Transpose", [model.node("DequantizeLinear", names, axis=len(shape) - 1 - axis)])
        case "identity":
            names = [model.constant(stored), scale, zero_point]
            return model.node("Identity", [model.node("DequantizeLinear", names, axis=axis)])
    return model.node("DequantizeLinear", [model.constant(stored), scale, zero_point], axis=axis)


def compare(write: Write, scratch: Path, seed: int = 0, opset: int = 17, always_compiles: bool = False) -> None:
    """Compares the oracle with ONNX Runtime on many samples, and compiled code on one random sample."""
    model = OnnxBuilder()
    write(model, np.random.default_rng(seed))
    data = model.build(opset)
    imported, reference = import_model(data), Reference(data, optimized=True)
    samples = sample_inputs(imported.signature, 24, seed)
    expected = [reference(sample) for sample in samples]
    for ours, theirs in zip(oracle.run_all(imported.module, MODE, samples), expected, strict=True):
        equal(ours, theirs)
    if always_compiles or is_to_be_compiled():
        equal(run_selected(imported.module, HOST, ONNXRUNTIME, samples[1], scratch)[1], expected[1])


def equal(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    for actual, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(actual, expected)
