"""Whole ONNX models, compiled by the pipeline and compared with ONNX Runtime bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.home import default_home
from service.compiler.importers.facts import facts_of
from service.compiler.importers.onnx.importer import import_model
from service.core.builds.numerics import ONNXRUNTIME
from service.core.verification.vectors import sample_inputs
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import Quantized, Weights, weights
from tests.support.onnx_catalog_qdq import bias_of, real
from tests.support.onnx_reference import Reference

WHOLE = ["resnet18", "resnet50", "mobilenet_v2", "inception_v3"]
SAMPLES = 12


def equal(source: Path, folder: Path) -> None:
    model, reference = compiled(source, ONNXRUNTIME, folder), Reference(source, optimized=True)
    samples = list(sample_inputs(model.signature, SAMPLES, seed=1))
    actual, expected = [model.run(sample) for sample in samples], [reference(sample) for sample in samples]
    facts = facts_of(import_model(source.read_bytes()))
    evidence.compare_compiled(facts, model.config.target, actual, expected)


class Network:
    """A small residual network in the form that PyTorch exports and ONNX Runtime quantizes."""

    def __init__(self) -> None:
        self.model, self.rng = OnnxBuilder(), np.random.default_rng(5)

    def quantized(self, x: str) -> tuple[str, Quantized]:
        """Adds QuantizeLinear and DequantizeLinear for `x`. Returns the real tensor and the stored one."""
        y = Quantized(self.model, self.rng, "uint8")
        return self.model.node("DequantizeLinear", [self.model.node("QuantizeLinear", [x, *y.names]), *y.names]), y

    def weights(self, *shape: int) -> tuple[str, Weights]:
        drawn = weights(self.model, self.rng, shape, 0, "uint8")
        return self.model.node("DequantizeLinear", drawn.names, axis=0), drawn

    def conv(self, x: str, step: Quantized, channels: int, filters: int, size: int, groups: int = 1) -> str:
        w, drawn = self.weights(filters, channels // groups, size, size)
        bias = bias_of(self.model, self.rng, filters, step.scale, drawn.scales)
        return self.model.node("Conv", [x, w, bias], pads=[size // 2] * 4, group=groups, kernel_shape=[size, size])

    def write(self) -> bytes:
        model = self.model
        first = Quantized(model, self.rng, "uint8")
        x = real(model, "image", ["N", 3, 20, 22], first)
        x, step = self.quantized(self.conv(x, first, 3, 24, 3))
        pooled = model.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        y, deep = self.quantized(self.conv(pooled, step, 24, 24, 3, groups=24))
        y, _ = self.quantized(self.conv(y, deep, 24, 24, 1))
        x, step = self.quantized(model.node("Add", [y, pooled]))
        mean, _ = self.quantized(model.node("GlobalAveragePool", [x]))
        gate, _ = self.quantized(model.node("Sigmoid", [mean]))
        x, step = self.quantized(model.node("Mul", [x, gate]))
        average, _ = self.quantized(model.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        x, step = self.quantized(model.node("Concat", [x, average, x], axis=1))
        x, step = self.quantized(model.node("GlobalAveragePool", [x]))
        w, drawn = self.weights(10, 72)
        bias = bias_of(model, self.rng, 10, step.scale, drawn.scales, stored=True)
        x, _ = self.quantized(model.node("Gemm", [model.node("Flatten", [x]), w, bias], transB=1))
        model.output(x, "float32", ["N", 10])
        return model.build()


def test_a_small_network(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(Network().write())
    equal(source, tmp_path)


def todays_attention() -> bytes:
    """Returns a model with the operators of current exporters between integer products: masks, positions, indices and
    fully masked rows.
    """
    model, rng = OnnxBuilder(), np.random.default_rng(7)
    tokens, width = 6, 16

    def table(*shape: int) -> str:
        return model.constant(rng.normal(size=shape), "float32")

    mask = model.node("Mod", [model.input("mask", "int64", [1, tokens]), model.constant(2, "int64")])
    sums = model.node("CumSum", [mask, model.constant(1, "int64")])
    positions = model.node("Expand", [model.node("Unsqueeze", [sums, model.constant([2], "int64")]),
                                   model.constant([1, tokens, 1], "int64")])  # fmt: skip
    x = model.node("GatherND", [table(12, width), positions])
    stored, step, point = (model.name() for _ in range(3))
    model.node("DynamicQuantizeLinear", [x], [stored, step, point])
    weights = model.constant(rng.integers(-128, 128, (width, width)), "int8")
    sums = model.node("MatMulInteger", [stored, weights, point])
    real = model.node("Mul", [model.node("Cast", [sums], to=1), model.node("Mul", [step, table()])])
    scores = model.node("Einsum", [real, x], equation="bic,bjc->bij")
    causal = model.node("Trilu", [model.constant(np.full((tokens, tokens), -1e4), "float32"),
                                  model.constant(1, "int64")])  # fmt: skip
    seen = model.node("Cast", [model.node("Unsqueeze", [mask, model.constant([1], "int64")])], to=9)
    masked = model.node("Where", [seen, model.node("Add", [scores, causal]), model.constant(-np.inf, "float32")])
    attended = model.node("Softmax", [masked])
    attended = model.node("Where", [model.node("IsNaN", [attended]), model.constant(0, "float32"), attended])
    y = model.node("MatMul", [attended, real])
    skipped = model.node("SkipLayerNormalization", [y, x, table(width), table(width)], domain="com.microsoft")
    best = ["values", "places"]
    model.node("TopK", [model.microsoft("FastGelu", [skipped]), model.constant([3], "int64")], best)
    model.output("values", "float32", ["N", tokens, 3])
    model.output("places", "int64", ["N", tokens, 3])
    return model.build()


def test_todays_attention(tmp_path: Path) -> None:
    """Compares compiled code with ONNX Runtime. Values are within the rounding errors of ONNX Runtime's float32 sums,
    softmax and normalization, and indices are equal.
    """
    source = tmp_path / "model.onnx"
    source.write_bytes(todays_attention())
    model, reference = compiled(source, ONNXRUNTIME, tmp_path), Reference(source, optimized=False)
    for sample in sample_inputs(model.signature, SAMPLES, seed=1):
        (values, positions), (others, other_places) = model.run(sample), reference(sample)
        np.testing.assert_allclose(values, others, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(positions, other_places)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_an_architecture(name: str, tmp_path: Path) -> None:
    """The models are those that `benchmarks.models` creates, with random weights."""
    source = default_home().models / "onnx" / f"{name}.u8s8.onnx"
    if not source.is_file():
        pytest.skip(f"{source} is missing: run python -m benchmarks.models; OCTET_BENCH_HOME is the folder of models")
    equal(source, tmp_path)
