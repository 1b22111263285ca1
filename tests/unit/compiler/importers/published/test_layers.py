"""Tests of the layers that are added to a model's file: ONNX Runtime computes the extended file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest

from service.compiler.importers.published.layers import POOLED, layers_after
from service.compiler.importers.published.modules import Dense, LayerNorm, Normalization, Steps
from service.core.errors import InvalidInput, Unsupported
from service.core.models.text import Pooling, Side
from service.runtime.results.pooling import pool
from tests.support.onnx_builder import OnnxBuilder

SIZE = 4
EYE = np.eye(SIZE, dtype=np.float32)
IDENTITY = Dense(EYE, None, "Identity")
TOKENS = np.random.default_rng(0).normal(size=(3, 6, SIZE)).astype(np.float32)


def model(opset: int) -> bytes:
    builder = OnnxBuilder()
    tokens = builder.input("hidden", "float32", ("batch", "tokens", SIZE))
    builder.input("attention_mask", "int64", ("batch", "tokens"))
    builder.node("Identity", [tokens], ["last_hidden_state"])
    builder.output("last_hidden_state", "float32", ("batch", "tokens", SIZE))
    return builder.build(opset)


def run(steps: Steps, mask: list[list[int]], *, opset: int = 17, side: Side = Side.RIGHT) -> np.ndarray[Any, Any]:
    addition = layers_after(steps, "last_hidden_state", "attention_mask", opset, side)
    session = onnxruntime.InferenceSession(model(opset) + addition, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_outputs()] == ["last_hidden_state", POOLED]
    found: Any = session.run([POOLED], {"hidden": TOKENS, "attention_mask": np.array(mask)})[0]
    return np.asarray(found)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("way", list(Pooling))
def test_the_pooling_is_that_of_the_runtime(way: Pooling, side: Side, opset: int) -> None:
    lengths = [6, 1, 4]
    mask = [[1] * length + [0] * (6 - length) for length in lengths]
    spans = [slice(0, length) for length in lengths]
    if side is Side.LEFT:
        mask, spans = [row[::-1] for row in mask], [slice(6 - length, 6) for length in lengths]
    found = run(Steps((way,), [IDENTITY]), mask, opset=opset, side=side)
    expected = np.stack([pool(row[span], [way]) for row, span in zip(TOKENS, spans, strict=True)])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)  # float32 sums in another order


def expected_of(activation: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    results: dict[str, np.ndarray[Any, Any]] = {
        "Identity": x,
        "Tanh": np.tanh(x),
        "ReLU": np.maximum(x, 0),
        "Sigmoid": 1 / (1 + np.exp(-x)),
        "GELU": x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        "SiLU": x / (1 + np.exp(-x)),
        "LeakyReLU": np.where(x > 0, x, 0.01 * x),
        "ELU": np.where(x > 0, x, np.expm1(x)),
        "Softplus": np.log1p(np.exp(x)),
        "ReLU6": np.clip(x, 0, 6),
    }
    return results[activation]


@pytest.mark.parametrize(
    "activation", ["Identity", "Tanh", "ReLU", "Sigmoid", "GELU", "SiLU", "LeakyReLU", "ELU", "Softplus", "ReLU6"]
)
def test_a_dense_layer_multiplies_adds_and_activates(activation: str) -> None:
    weight, bias = np.arange(12, dtype=np.float32).reshape(3, 4) - 5, np.array([1, -2, 0.5], np.float32)
    found = run(Steps((Pooling.CLS,), [Dense(weight, bias, activation)]), [[1] * 6] * 3)
    x = (TOKENS[:, 0] @ weight.T + bias).astype(np.float64)
    np.testing.assert_allclose(found, expected_of(activation, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("residual", [None, EYE * 2])
def test_a_residual_is_added(residual: Any) -> None:
    found = run(Steps((Pooling.CLS,), [Dense(EYE, None, "Identity", True, residual)]), [[1] * 6] * 3)
    np.testing.assert_allclose(found, TOKENS[:, 0] * (2 if residual is None else 3), rtol=1e-6)


def test_a_residual_of_another_size_needs_weights() -> None:
    with pytest.raises(InvalidInput, match="residual"):
        run(Steps((Pooling.CLS,), [Dense(EYE[:2], None, "Identity", True)]), [[1] * 6] * 3)


@pytest.mark.parametrize("opset", [11, 18])
def test_normalizations_before_a_dense_layer_are_added(opset: int) -> None:
    scale, shift = np.array([1, 2, 3, 4], np.float32), np.array([0, 1, 0, -1], np.float32)
    found = run(Steps((Pooling.CLS,), [LayerNorm(scale, shift), Normalization(), IDENTITY]), [[1] * 6] * 3, opset=opset)
    x = TOKENS[:, 0].astype(np.float64)
    centered = x - x.mean(-1, keepdims=True)
    y = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(found, y / np.linalg.norm(y, axis=-1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_an_old_operator_set_is_refused() -> None:
    with pytest.raises(Unsupported, match="version 10"):
        layers_after(Steps((Pooling.CLS,), [IDENTITY]), "y", "mask", 10, Side.RIGHT)
