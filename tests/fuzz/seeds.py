"""The first inputs of fuzzing: the fixtures, the catalogs of models with one operator, and handwritten programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from service.compiler.importers.detect import EXECUTORCH, MXNET, ONNX, OPENVINO, PT2, TFLITE, TORCHSCRIPT
from tests.support import (
    executorch_programs,
    exported,
    mxnet_models,
    openvino_models,
    tflite_catalog,
    tflite_catalog_16x8,
    tflite_recurrent,
    tflite_sparse,
    torchscript,
)
from tests.support.fuzz import MODELS

_FIXTURES = Path(__file__).parents[1] / "fixtures"

# The shapes of inputs, for formats whose files may not contain them. In other formats, the file contains shapes.
SHAPES: Mapping[str, Mapping[str, tuple[int, ...]]] = {TORCHSCRIPT: {"": (2, 3, 12, 12)}, PT2: {"": (2, 3, 12, 12)}}


def _tflite() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in _FIXTURES.glob("tflite/*.tflite"))
    for catalog in (tflite_catalog.MODELS, tflite_catalog_16x8.MODELS, tflite_recurrent.MODELS, tflite_sparse.MODELS):
        yield from (make() for make in catalog.values())


def _onnx() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in _FIXTURES.glob("onnx/*.onnx"))
    yield from (make() for name, make in MODELS.items() if name.startswith("onnx "))
    with np.load(_FIXTURES / "onnx" / "node_cases.npz") as arrays:
        yield from (arrays[name].tobytes() for name in arrays.files if name.endswith(".model"))


def _torchscript() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in torchscript.FIXTURES)
    yield torchscript.quantized("y = torch.relu(q)")


def _pt2() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in exported.FIXTURES)
    steps = [exported.quantize("x", "q"), exported.dequantize("q", "r")]
    yield exported.program(
        exported.document([*steps, exported.node("torch.ops.aten.relu.default", "y", exported.tensor("r"))])
    )


def _mxnet() -> Iterator[bytes]:
    yield from (mxnet_models.packed(name) for name in mxnet_models.NAMES)


def _openvino() -> Iterator[bytes]:
    yield from (openvino_models.packed(name) for name in openvino_models.NAMES)


def _executorch() -> Iterator[bytes]:
    yield from (executorch_programs.program(name) for name in executorch_programs.NAMES)


SEEDS: Mapping[str, Callable[[], Iterator[bytes]]] = {
    TFLITE: _tflite,
    ONNX: _onnx,
    TORCHSCRIPT: _torchscript,
    PT2: _pt2,
    MXNET: _mxnet,
    OPENVINO: _openvino,
    EXECUTORCH: _executorch,
}
