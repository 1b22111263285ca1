"""Inputs become constants in every importer that supports it, and values that do not fit are refused in a sentence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from service.compiler.children.checking_roles import reference_role
from service.compiler.importers.auto import import_model
from service.compiler.importers.builder.fixing import Declared, fixed_inputs
from service.compiler.importers.openvino.file.package import pack
from service.compiler.messages.checking import ReferenceRequest, ReferenceResult
from service.compiler.messages.files import reference_file
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.sandbox import Report
from service.core.builds.fixed import Number
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME, OPENVINO
from service.core.errors import InvalidInput, Unsupported
from service.core.models.signature import ModelSignature
from service.core.verification.vectors import sample_inputs
from tests.support.onnx_builder import OnnxBuilder
from tests.support.tflite_control import branches
from tests.support.torchscript import script

SAMPLES = 3


def _branch(op_type: str, *, shape: Sequence[int]) -> bytes:
    b = OnnxBuilder()
    b.node("Reshape", [b.node(op_type, ["x"]), b.constant(list(shape))], ["result"])
    b.output("result", "float32")
    return b.graph()


def _by_rate() -> bytes:
    """Returns a model as Silero VAD is: `sr` chooses between branches with results of different shapes."""
    b = OnnxBuilder()
    b.input("x", "float32", ["N", 4])
    b.input("sr", "int64", [])
    condition = b.node("Equal", ["sr", b.constant(16000, "int64")])
    b.node("If", [condition], ["y"], then_branch=_branch("Exp", shape=[2, 2]), else_branch=_branch("Neg", shape=[4, 1]))
    b.output("y", "float32")
    return b.build()


def _references(
    path: Path, data: bytes, format: str, numerics: str, signature: ModelSignature
) -> list[list[np.ndarray]]:
    """Returns the outputs of the format's runtime, as the reference child of a build computes them."""
    (path / "model").write_bytes(data)
    request = ReferenceRequest(path / "model", format, None, numerics, signature, SAMPLES)
    result = ReferenceResult.from_json(reference_role(request.to_json(), Report(os.open(os.devnull, os.O_WRONLY))))
    first = result.sessions[0]
    assert (first.error, dict(first.refused), first.answered) == (None, {}, SAMPLES)
    with np.load(reference_file(0)) as arrays:
        return [[arrays[f"{number}.{k}"] for k in range(len(signature.outputs))] for number in range(SAMPLES)]


@pytest.mark.parametrize(
    ("data", "format", "numerics", "fixed", "shape"),
    [
        (_by_rate(), "onnx", ONNXRUNTIME, {"sr": [16000]}, (2, 2)),
        (_by_rate(), "onnx", ONNXRUNTIME, {"sr": [8000]}, (4, 1)),
        (branches(()), "tflite", LITERT_REFERENCE, {"c": [True]}, (2, 3)),
        (branches((1,)), "tflite", LITERT_REFERENCE, {"c": [0]}, (2, 3)),
    ],
)
def test_an_input_with_a_fixed_value_decides_a_branch(
    data: bytes,
    format: str,
    numerics: str,
    fixed: dict[str, list[Number]],
    shape: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    imported = import_model(data, fixed=fixed)
    signature = ModelSignature.from_json(imported.signature.to_json())
    assert signature == imported.signature
    assert [spec.name for spec in signature.inputs] == ["x"]
    assert signature.outputs[0].shape == shape
    (name,), (values,) = fixed, fixed.values()
    assert f"the input {name} is fixed at {values[0]}" in imported.notices
    assert "where" not in str(imported.module.script())
    ours = oracle.run_all(imported.module, get_mode(numerics), list(sample_inputs(signature, SAMPLES)))
    for one, other in zip(ours, _references(tmp_path, data, format, numerics, signature), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def _product() -> bytes:
    """Returns an OpenVINO graph that multiplies `a` and `b`."""
    port = '<port id="{}" precision="FP32"><dim>2</dim></port>'
    data = '<data shape="2" element_type="f32"/>'
    ends = f"<input>{port.format(0)}{port.format(1)}</input><output>{port.format(2)}</output>"
    layers = (
        *(f'<layer id="{i}" name="{name}" type="Parameter">{data}<output>{port.format(0)}</output></layer>'
          for i, name in enumerate("ab")),
        f'<layer id="2" name="c" type="Multiply">{ends}</layer>',
        f'<layer id="3" name="d" type="Result"><input>{port.format(0)}</input></layer>',
    )  # fmt: skip
    edge = '<edge from-layer="{}" from-port="{}" to-layer="{}" to-port="{}"/>'
    edges = edge.format(0, 0, 2, 0) + edge.format(1, 0, 2, 1) + edge.format(2, 2, 3, 0)
    net = f'<net name="n" version="11"><layers>{"".join(layers)}</layers><edges>{edges}</edges></net>'
    return pack(f'<?xml version="1.0"?>{net}'.encode(), b"")


def test_a_fixed_input_of_openvino_is_a_constant() -> None:
    imported = import_model(_product(), fixed={"b": [3, 5]})
    assert [spec.name for spec in imported.signature.inputs] == ["a"]
    assert imported.signature.fixed[0].index == 1
    (y,) = oracle.run(imported.module, get_mode(OPENVINO), [np.array([2, 4], np.float32)])
    assert y.tolist() == [6, 20]


def test_the_inputs_of_a_file_are_completed_in_its_order() -> None:
    b = OnnxBuilder()
    for name in "abc":
        b.input(name, "float32", [2])
    b.output(b.node("Sum", ["a", "b", "c"]), "float32")
    signature = import_model(b.build(), fixed={"c": [3], "a": [1, 2]}).signature
    complete = signature.complete([np.full(2, 7, np.float32)])
    assert [value.tolist() for value in complete] == [[1, 2], [7, 7], [3, 3]]
    assert signature.batched(1).fixed == signature.fixed


@pytest.mark.parametrize(
    ("declared", "given", "values", "shape"),
    [
        (("int64", []), None, [1], ()),
        (("int64", [3]), None, [1, 2, 3], (3,)),
        (("int64", ["N"]), None, [1, 2, 3], (3,)),
        (("int64", ["N", 2]), None, [1, 2, 3, 4], (2, 2)),
        (("int64", ["N"]), None, [5], (1,)),
        (("float32", ["N", "L"]), (2, 3), [0], (2, 3)),
        (("float32", None), (2, 3), [0], (2, 3)),
        (("float32", None), None, [0, 1], (2,)),
        (("float16", [1]), None, [0.1], (1,)),
        (("bool", [1]), None, [1], (1,)),
        (("uint8", [2]), None, [0, 255.0], (2,)),
    ],
)
def test_values_that_fit(
    declared: tuple[str, Sequence[int | str] | None],
    given: Sequence[int] | None,
    values: list[Number],
    shape: tuple[int, ...],
) -> None:
    (found,) = fixed_inputs([Declared("x", *declared)], {"x": given} if given else {}, {"x": values})
    assert found.spec.shape == shape
    elements = found.elements()
    assert (elements.dtype.name, elements.shape) == (declared[0], shape)
    np.testing.assert_array_equal(elements.reshape(-1), np.resize(np.array(values, declared[0]), elements.size))


@pytest.mark.parametrize(
    ("declared", "values", "message"),
    [
        (("int64", []), [1, 2], r"the input x of \[\] has 1 elements, but 2 values are given"),
        (("int64", [3]), [1, 2], r"the input x of \[3\] has 3 elements, but 2 values are given"),
        (("float32", [0]), [1], r"the input x of \[0\] has 0 elements, but 1 values are given"),
        (("float32", [1024, 2048]), [1], "has 2,097,152 elements, more than 1,048,576"),
        (("int64", []), [1.5], "the input x is int64, which cannot have the value 1.5"),
        (("uint8", []), [256], "the input x is uint8, which cannot have the value 256"),
        (("bool", []), [2], "the input x is bool, which cannot have the value 2"),
        (("float16", []), [70000], "the input x is float16, which cannot have the value 70000"),
    ],
)
def test_values_that_do_not_fit(declared: tuple[str, list[int]], values: list[Number], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fixed_inputs([Declared("x", *declared)], {}, {"x": values})


def test_a_type_that_no_value_has_is_refused() -> None:
    with pytest.raises(Unsupported, match="the input x is string, which cannot be fixed"):
        fixed_inputs([Declared("x", "string", [])], {}, {"x": [1]})


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"rate": [1]}, "the model has no input 'rate'"),
        ({"x": [1], "sr": [1]}, "all inputs have a fixed value"),
    ],
)
def test_names_that_do_not_fit(fixed: dict[str, list[Number]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        import_model(_by_rate(), fixed=fixed)


def test_a_shape_without_a_name_is_that_of_the_only_input_that_is_left() -> None:
    imported = import_model(_by_rate(), shapes={"": [1, 4]}, fixed={"sr": [16000]})
    assert imported.signature.inputs[0].shape == (1, 4)
    with pytest.raises(InvalidInput, match="the model has no input ''"):
        import_model(_by_rate(), shapes={"": [1, 4]})


def test_other_formats_refuse_fixed_values() -> None:
    with pytest.raises(Unsupported, match="only inputs of ONNX, TFLite and OpenVINO files can be fixed"):
        import_model(script(["return x"]), fixed={"x": [1]})
