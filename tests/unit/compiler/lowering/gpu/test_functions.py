"""For small models, generated GPU code computes the same bytes as the oracle, and NVRTC compiles every function.

No hand-written kernels are used.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from service.compiler.importers.auto import import_model
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME, XNNPACK
from service.core.verification.vectors import sample_inputs
from tests.support import (
    onnx_catalog,
    onnx_catalog_dynamic,
    onnx_catalog_exports,
    onnx_catalog_real,
    tflite_catalog,
    tflite_catalog_16x8,
    tflite_recurrent,
)
from tests.support.cuda.machine_code import compile_for, needs_nvrtc
from tests.support.cuda.models import CardModel
from tests.support.onnx_catalog import case
from tests.support.qnn_models import Emit, module_of

SAMPLES, SEED = 4, 1
TFLITE = {**tflite_catalog.MODELS, **tflite_catalog_16x8.MODELS, **tflite_recurrent.MODELS}
OF_TFLITE = (
    "conv int8 same strided, odd padding after",
    "softmax int8",
    "softmax int16",
    "add int8",
    "average pool int8",
    "average pool int16 same",
    "max pool int8 same relu6",
    "mean int8",
    "pad int8",
    "logistic int16",
    "transpose conv int8",
    "fully connected 16x8",
    "L2_NORMALIZATION",
    "GATHER_ND int8",
    "RESIZE_NEAREST_NEIGHBOR uint8",
    "STRIDED_SLICE int8",
    "BATCH_MATMUL",
    "SELECT",
    "ARG_MAX",
    "lstm, one step",
    "svdf",
)
OF_ONNX = {
    "DynamicQuantizeLinear": onnx_catalog_dynamic.DYNAMIC,
    "MatMulInteger": onnx_catalog_dynamic.DYNAMIC,
    "QLinearSoftmax": onnx_catalog.CATALOG,
    "QLinearAdd": onnx_catalog.CATALOG,
    "QLinearGlobalAveragePool": onnx_catalog.CATALOG,
    "Softmax": onnx_catalog_real.REAL,
    "LayerNormalization": onnx_catalog_real.REAL,
    "com.microsoft.Gelu": onnx_catalog_real.REAL,
    "MatMul": onnx_catalog_real.REAL,
    "Conv": onnx_catalog_real.REAL,
    "Resize": onnx_catalog_real.MOVED,
    "Gather": onnx_catalog_real.MOVED,
    "Slice": onnx_catalog_real.MOVED,
    "TopK": onnx_catalog_exports.MOVED,
    "CumSum": onnx_catalog_exports.MOVED,
    "ScatterElements, reduced": onnx_catalog_exports.MOVED,
    "OneHot": onnx_catalog_exports.MOVED,
}
Make = Callable[[], bytes]


def models() -> dict[str, tuple[Make, str]]:
    made: dict[str, tuple[Make, str]] = {name: (TFLITE[name], LITERT_REFERENCE) for name in OF_TFLITE}
    made["softmax int8, xnnpack"] = (TFLITE["softmax int8"], XNNPACK)
    made["conv int8, xnnpack"] = (TFLITE["conv int8"], XNNPACK)

    def of_onnx(name: str) -> Make:
        return lambda: case(name, SEED, OF_ONNX[name])

    return made | {f"{name} of ONNX": (of_onnx(name), ONNXRUNTIME) for name in OF_ONNX}


MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_the_bytes_are_those_of_the_oracle(name: str) -> None:
    make, mode = MODELS[name]
    imported = import_model(make())
    model = CardModel(imported.module, mode)
    assert model.context.selection is not None
    assert not model.context.selection.inexact
    states = [state.first() for state in imported.signature.states]
    for seed, sample in enumerate(sample_inputs(imported.signature, SAMPLES)):
        inputs = [*sample, *states]
        expected = oracle.run(imported.module, get_mode(mode), inputs)
        for mine, right in zip(model(inputs, seed), expected, strict=True):
            np.testing.assert_array_equal(mine, right, strict=True)


def test_detections() -> None:
    """Some of the boxes overlap. They are decoded with `exp` of the C library here, and with CUDA's `exp` on a GPU."""
    rng, count = np.random.default_rng(SEED), 30
    anchors = np.stack([*rng.random((2, count)), np.full(count, 0.3), np.full(count, 0.2)], 1).astype(np.float32)

    def body(emit: Emit, x: list[relax.Var]) -> relax.Var:
        found = ops.detect(
            x[0],
            x[1],
            relax.const(anchors),
            scales=(10, 10, 5, 5),
            score_threshold=0.3,
            iou_threshold=0.5,
            max_detections=8,
            first_class=1,
        )
        return emit(found)

    module = module_of([((count, 4), "float32"), ((count, 3), "float32")], body)
    model = CardModel(module, LITERT_REFERENCE)
    assert model.context.selection is not None
    assert list(model.context.selection.inexact.values()) == [["exp"]]
    boxes, scores = rng.normal(0, 0.7, (count, 4)).astype(np.float32), rng.random((count, 3)).astype(np.float32)
    (expected,) = oracle.run(module, get_mode(LITERT_REFERENCE), [boxes, scores])
    assert 0 < expected[0, -1] < 8 or expected[:, 4].any()
    np.testing.assert_array_equal(model([boxes, scores])[0], expected, strict=True)


@needs_nvrtc
@pytest.mark.parametrize("name", ["softmax int8", "LayerNormalization of ONNX", "TopK of ONNX"])
def test_nvrtc_compiles_every_function(name: str) -> None:
    make, mode = MODELS[name]
    for kernel in CardModel(import_model(make()).module, mode).kernels.values():
        compile_for("sm_80", kernel)
