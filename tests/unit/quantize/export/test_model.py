"""Whole float models are converted to ONNX. Models of PyTorch are compared with recorded outputs, and those of TFLite
with their imported form.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from service.compiler.importers.mxnet.package import pack_files
from service.compiler.importers.onnx.importer import import_model
from service.core.errors import Unsupported
from service.core.models.metadata import Layout, ModelMetadata
from service.quantize.export.model import as_onnx
from service.quantize.file.document import Document
from tests.support.float_networks import pictures, residual_network
from tests.support.onnx_builder import OnnxBuilder
from tests.support.tflite_float_network import tflite_residual_network
from tests.support.tflite_metadata import IMAGE, Described, labels_in, metadata_buffer, with_metadata

FOLDER = Path(__file__).parents[3] / "fixtures" / "float"


def answers(data: bytes, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: x}))


@pytest.mark.parametrize("name", ["network.pt", "network.pt2"])
def test_a_network_of_pytorch(name: str) -> None:
    with np.load(FOLDER / "network.npz") as arrays:
        x, *expected = (arrays[each] for each in arrays.files)
    data = as_onnx((FOLDER / name).read_bytes(), {})
    for ours, theirs in zip(answers(data, x), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)  # float32 sums of some ten layers
    found = Counter(node.op_type for node in Document(data).nodes)
    whole = (
        "AveragePool",
        "Conv",
        "Elu",
        "GlobalAveragePool",
        "HardSwish",
        "LayerNormalization",
        "LeakyRelu",
        "MaxPool",
    )
    assert {each: found[each] for each in whole} == dict.fromkeys(whole, 1) | {"Conv": 5, "LayerNormalization": 2}
    assert (found["Softmax"], found["Sigmoid"], found["Exp"], found["Sqrt"]) == (1, 2, 0, 0)
    assert found["Cast"] == 0, "the importers' conversions to float64 are removed"


def test_a_network_of_tflite() -> None:
    """One Transpose remains: that of the input."""
    data = as_onnx(tflite_residual_network(), {})
    images = pictures(1)
    (expected,) = answers(residual_network(), images)
    (ours,) = answers(data, np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(ours, expected, 1e-5, 1e-6)
    found = Counter(node.op_type for node in Document(data).nodes)
    assert (found["Transpose"], found["Conv"], found["MaxPool"], found["GlobalAveragePool"]) == (1, 4, 1, 1)


def test_labels_and_preprocessing_are_kept() -> None:
    """The metadata also survives editing the file."""
    labels = tuple(f"number {digit}" for digit in range(10))
    described = metadata_buffer([Described(IMAGE, mean=[127.5], std=[127.5])], [labels_in()])
    source = with_metadata(tflite_residual_network(), described, {"labels.txt": "\n".join(labels)})
    again = import_model(Document(as_onnx(source, {})).serialize())
    assert again.metadata == ModelMetadata(labels, (0.5,), (0.5,), None, Layout.NHWC)
    assert again.notices == ()


def test_onnx_is_used_unchanged() -> None:
    assert as_onnx(residual_network(), {}) == residual_network()


def test_an_unsupported_format_has_a_hint() -> None:
    data = pack_files(next((FOLDER.parent / "mxnet").glob("*-symbol.json")))
    with pytest.raises(Unsupported, match="mxnet cannot be quantized") as caught:
        as_onnx(data, {})
    assert "ONNX" in str(caught.value.hint)


def test_an_onnx_file_loses_its_fixed_inputs() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.input("flag", "bool", [])
    model.node("If", ["flag"], ["y"], then_branch=_branch("Neg"), else_branch=_branch("Abs"))
    model.output("y", "float32")
    data = as_onnx(model.build(), {}, fixed={"flag": [True]})
    assert [each.op_type for each in Document(data).nodes] == ["Neg"]
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    np.testing.assert_array_equal(answers(data, x)[0], -x)


def _branch(op_type: str) -> bytes:
    branch = OnnxBuilder()
    branch.node(op_type, ["x"], ["result"])
    branch.output("result", "float32")
    return branch.graph()
