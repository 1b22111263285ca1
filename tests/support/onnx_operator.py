"""Compares models of one ONNX operator with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support import evidence
from tests.support.conformance import assert_compiled_equals
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference


@dataclass(frozen=True)
class Constant:
    """An operand that is a constant of the model. Other operands are inputs."""

    data: Array


Operand = Array | Constant | None


def constant(values: Any, dtype: str = "int64") -> Constant:
    return Constant(np.array(values, dtype))


def model_of(
    op_type: str, operands: Sequence[Operand], outputs: Sequence[str], opset: int, attributes: Mapping[str, Any]
) -> tuple[bytes, list[Array]]:
    """Returns the file of a model of one operator, and the values of its inputs.

    Args:
        op_type: the type, with its domain if that is not ONNX's own: `com.microsoft.QGemm`.
        operands: None for an operand that is left out.
        outputs: the dtype of each output.
    """
    model, names, sent = OnnxBuilder(), [], list[Array]()
    for index, operand in enumerate(operands):
        if operand is None:
            names.append("")
        elif isinstance(operand, Constant):
            names.append(model.constant(operand.data))
        else:
            names.append(model.input(f"x{index}", operand.dtype.name, list(operand.shape)))
            sent.append(operand)
    ends = [f"y{index}" for index in range(len(outputs))]
    domain, _, own_type = op_type.rpartition(".")
    model.node(own_type, names, ends, domain, **attributes)
    for end, dtype in zip(ends, outputs, strict=True):
        model.output(end, dtype)
    return model.build(opset), sent


def assert_as_onnx_runtime(
    op_type: str,
    operands: Sequence[Operand],
    outputs: Sequence[str] = ("float32",),
    opset: int = 20,
    *,
    tolerance: float = 0.0,
    compiled: bool = False,
    **attributes: Any,
) -> ImportedModel:
    """Imports a model of one operator, and compares the results of the oracle with those of ONNX Runtime.

    Args:
        tolerance: the largest difference of float32 values, as a fraction of the largest value.
        compiled: true to compile the model as well, and to compare it with the oracle.
    """
    data, sent = model_of(op_type, operands, outputs, opset, attributes)
    imported, expected = import_model(data), Reference(data, optimized=False)(sent)
    actual = oracle.run(imported.module, get_mode(ONNXRUNTIME), sent)
    assert [each.shape for each in actual] == [each.shape for each in expected]
    steps = tolerance * max((float(np.max(np.abs(each), initial=0)) for each in expected), default=0.0)
    evidence.compare(imported, ONNXRUNTIME, [actual], [expected], steps=steps)
    if compiled:
        assert_compiled_equals(imported.module, ONNXRUNTIME, [sent], [], [actual])
    return imported
