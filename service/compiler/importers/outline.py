"""The outline of a model that cannot be compiled, which `octet inspect` shows when an import fails.

TFLite and ONNX files have separate readers, which an import failure does not affect. Files of other formats can only be
read by importing them.
"""

from __future__ import annotations

import io
from collections import Counter

from service.compiler.importers import detect
from service.compiler.importers.names import printable
from service.compiler.importers.onnx.file import reader as onnx
from service.compiler.importers.onnx.model import Model as OnnxModel
from service.compiler.importers.onnx.support import is_quantized
from service.compiler.importers.tflite.file import reader as tflite
from service.compiler.importers.tflite.model import Model as TFLiteModel
from service.core.errors import OctetError
from service.core.models.facts import Outline

_MOST_ENDS = 100
_STORED = ("int4", "int8", "uint8", "int16")


def outline_of(data: bytes, error: OctetError) -> Outline:
    """Returns the outline of the model in a file that could not be imported because of `error`.

    Raises:
        OctetError: `error`, for a format without a separate reader; otherwise the error that prevents the file from
            being read.
    """
    match detect.format_of(io.BytesIO(data)):
        case detect.TFLITE:
            return _of_tflite(tflite.read_model(data), error)
        case detect.ONNX:
            return _of_onnx(onnx.read_model(data), error)
        case _:
            raise error


def _of_tflite(model: TFLiteModel, error: OctetError) -> Outline:
    inputs, outputs = (
        tuple((printable(tensor.name), tensor.dtype, tensor.shape) for tensor in (model.tensors[i] for i in ends))
        for ends in (model.inputs[:_MOST_ENDS], model.outputs[:_MOST_ENDS])
    )
    quantized = any(tensor.quantization and tensor.dtype in _STORED for tensor in model.tensors)
    operators = Counter(printable(operator.name) for operator in model.operators)
    return Outline(detect.TFLITE, inputs, outputs, operators, quantized, _members(error))


def _of_onnx(model: OnnxModel, error: OctetError) -> Outline:
    inputs, outputs = (
        tuple((printable(end.name), end.dtype, end.shape or ()) for end in ends[:_MOST_ENDS])
        for ends in (model.inputs, model.outputs)
    )
    quantized = any(is_quantized(operator.op_type) for operator in model.operators)
    operators = Counter(printable(operator.op_type) for operator in model.operators)
    return Outline(detect.ONNX, inputs, outputs, operators, quantized, _members(error))


def _members(error: OctetError) -> dict[str, str]:
    return {name: str(value) for name, value in error.to_json().items()}
