"""Averages of real images equal ONNX Runtime's bit for bit, in each order in which ONNX Runtime adds the elements.

The order depends on the version of the operator, on the number of channels, and on the operator before the pool. ONNX
Runtime stores channels in blocks of 16 on AVX-512 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.core.target import detect_host
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

SAMPLES = 8
POOLS: dict[str, dict[str, Any] | None] = {
    "windows": {"kernel_shape": [2, 3]},
    "padding": {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]},
    "padding counted": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    "the whole image": {"kernel_shape": [6, 7]},
    "global": None,
}


def model_of(front: str, pool: str, channels: int, opset: int) -> bytes:
    model = OnnxBuilder()
    x = model.input("x", "uint8" if front == "DequantizeLinear" else "float32", (2, channels, 6, 7))
    parameters = [model.constant(np.float32(0.011), "float32"), model.constant(151, "uint8")]
    if front:
        x = model.node(front, [x, *(parameters if front == "DequantizeLinear" else [])])
    attributes = POOLS[pool]
    y = model.node("GlobalAveragePool", [x]) if attributes is None else model.node("AveragePool", [x], **attributes)
    model.output(y, "float32")
    return model.build(opset)


def samples_of(front: str, shape: Sequence[int]) -> list[Array]:
    rng = np.random.default_rng(0)
    if front == "DequantizeLinear":
        return [rng.integers(0, 256, shape).astype(np.uint8) for _ in range(SAMPLES)]
    return [rng.uniform(0.1, 1, shape).astype(np.float32) for _ in range(SAMPLES)]


@pytest.mark.parametrize("opset", [17, 19, 22])
@pytest.mark.parametrize("channels", [6, 16])  # 6 fill no blocks of any instruction set
@pytest.mark.parametrize("front", ["", "DequantizeLinear", "Relu", "Sqrt"])
@pytest.mark.parametrize("pool", POOLS)
def test_averages_are_added_in_the_order_of_the_runtime(pool: str, front: str, channels: int, opset: int) -> None:
    if channels == 16 and "avx512f" not in detect_host().features:
        pytest.skip("ONNX Runtime stores images in other blocks here")
    data = model_of(front, pool, channels, opset)
    imported, reference = import_model(data), Reference(data, optimized=True)
    for sample in samples_of(front, (2, channels, 6, 7)):
        ours, theirs = oracle.run(imported.module, get_mode(ONNXRUNTIME), [sample]), reference([sample])
        evidence.compare(imported, ONNXRUNTIME, [ours], [theirs])
