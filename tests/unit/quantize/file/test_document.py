"""An unedited file is written unchanged. An edited file computes the intended result."""

from __future__ import annotations

import io
import zipfile

import numpy as np

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.file.document import Document, Node
from tests.support.float_networks import pictures, residual_network
from tests.support.onnx_builder import OnnxBuilder, message, number


def test_a_file_survives_a_round_trip() -> None:
    first, again = (read_model(data) for data in (residual_network(), Document(residual_network()).serialize()))
    assert [(each.op_type, each.inputs, each.outputs, each.attributes) for each in first.operators] == [
        (each.op_type, each.inputs, each.outputs, each.attributes) for each in again.operators
    ]
    assert first.inputs == again.inputs
    assert first.outputs == again.outputs
    assert {name: tensor.data.tobytes() for name, tensor in first.constants.items() if tensor.data is not None} == {
        name: tensor.data.tobytes() for name, tensor in again.constants.items() if tensor.data is not None
    }


def test_unknown_fields_are_kept() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [4])
    model.output(model.node("Relu", ["x"]), "float32")
    model.nodes[0] += message(6, "a word about it") + number(9999, 7)
    metadata = message(14, message(1, "source") + message(2, "a word about all"))
    data = model.build() + metadata + number(5000, 3)
    written = Document(data).serialize()
    for kept in (message(6, "a word about it"), number(9999, 7), metadata, number(5000, 3)):
        assert kept in written


def test_tensors_become_outputs() -> None:
    document = Document(residual_network())
    inner = next(node.outputs[0] for node in document.nodes if node.op_type == "MaxPool")
    model = import_model(document.serialize(("scores", inner)))
    assert [spec.name for spec in model.signature.outputs] == ["scores", inner]
    both = oracle.run(model.module, get_mode(ONNXRUNTIME), [pictures(1)])
    (alone,) = oracle.run(import_model(residual_network()).module, get_mode(ONNXRUNTIME), [pictures(1)])
    np.testing.assert_array_equal(both[0], alone)
    assert both[1].shape == (1, 16, 4, 4)


def test_weights_in_other_files_are_embedded() -> None:
    model, values = OnnxBuilder(), np.arange(8, dtype=np.float32).reshape(4, 2)
    model.input("x", "float32", [1, 4])
    model.output(model.node("MatMul", ["x", model.external(values, "weights.bin")]), "float32")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model.onnx", model.build())
        file.writestr("weights.bin", values.tobytes())
    (constant,) = read_model(Document(archive.getvalue()).serialize()).constants.values()
    np.testing.assert_array_equal(constant.data, values)


def test_new_names_are_unique() -> None:
    document = Document(residual_network())
    assert document.new_name("image") == "image_1"
    assert document.add_constant("image", np.zeros(1, np.float32)) == "image_2"


def test_new_operators_have_their_attributes() -> None:
    document = Document(residual_network())
    made = Node.create("Softmax", ("scores",), "again", axis=-1)
    document.nodes.append(made)
    (*_, last) = read_model(document.serialize(("again",))).operators
    assert (last.op_type, last.inputs, last.outputs, last.attributes) == (
        "Softmax",
        ("scores",),
        ("again",),
        {"axis": -1},
    )
