"""Compares an operator that was exported to ONNX with its module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from tvm import relax

from service.compiler.importers.detect import TFLITE
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.importer import import_model as import_onnx
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.quantize.export.model import convert_module
from service.quantize.file.document import Document

# Tolerances: ONNX Runtime adds some hundred float32 terms in another order than Octet, and uses the exp of another
# library.
RELATIVE, ABSOLUTE = 2e-5, 4e-6


def agrees(imported: ImportedModel, inputs: Sequence[Array]) -> list[str]:
    """Asserts that ONNX Runtime and Octet compute the same results from the converted file as from `imported`. Returns
    the operators in the file.
    """
    data = convert_module(imported)
    expected = oracle.run(imported.module, get_mode(LITERT_REFERENCE), list(inputs))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {spec.name: x for spec, x in zip(imported.signature.inputs, inputs, strict=True)})
    again = import_onnx(data)
    assert again.signature.inputs == imported.signature.inputs
    assert [spec.name for spec in again.signature.outputs] == [spec.name for spec in imported.signature.outputs]
    ours = oracle.run(again.module, get_mode(ONNXRUNTIME), list(inputs))
    for wanted, one, other in zip(expected, theirs, ours, strict=True):
        assert wanted.shape == one.shape == other.shape
        np.testing.assert_allclose(one, wanted, RELATIVE, ABSOLUTE)
        np.testing.assert_allclose(other, wanted, RELATIVE, ABSOLUTE)
    return [node.op_type for node in Document(data).nodes]


def of(make: Any, *shapes: Sequence[int]) -> ImportedModel:
    """Imports a float32 module whose result is `make(emit, *params)`."""
    params = [relax.Var(f"x{index}", relax.TensorType(list(shape), "float32")) for index, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            end = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(end)
    module = builder.get()
    made = graph.shape_of(graph.results_of(graph.main_of(module))[0])
    inputs = tuple(TensorSpec(f"in{index}", "FP32", tuple(shape)) for index, shape in enumerate(shapes))
    return ImportedModel(module, ModelSignature(inputs, (TensorSpec("out", "FP32", made),)), TFLITE)
