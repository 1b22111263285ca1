"""Imports a model file of any supported format."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from service.compiler.importers import qnn_text
from service.compiler.importers.builder.module import At, Shapes
from service.compiler.importers.detect import (
    EXECUTORCH,
    MXNET,
    ONNX,
    OPENVINO,
    PT2,
    QNN,
    TFLITE,
    TORCHSCRIPT,
    format_of,
)
from service.compiler.importers.executorch import importer as executorch
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.mxnet import importer as mxnet
from service.compiler.importers.onnx import importer as onnx
from service.compiler.importers.openvino import importer as openvino
from service.compiler.importers.tflite import importer as tflite
from service.compiler.importers.torch import importer as torch
from service.compiler.importers.torch.exported import importer as exported
from service.compiler.qnn.patterns import PATTERNS, apply_patterns, matched_form
from service.core.builds.fixed import Fixed
from service.core.errors import MalformedModel, Unsupported

_DAMAGED = "the file is damaged, or the program that wrote it has a bug: export the model again"
_CHANGE = "change this part of the model and export it again, or cut the model before it"


Importer = Callable[[bytes, At, Shapes, Fixed], ImportedModel]


def _with_all_inputs(importer: Callable[[bytes, At, Shapes], ImportedModel]) -> Importer:
    """Returns an importer for a format whose inputs cannot get a fixed value."""

    def import_model(data: bytes, at: At, shapes: Shapes, fixed: Fixed) -> ImportedModel:
        if fixed:
            raise Unsupported(
                "only inputs of ONNX, TFLite and OpenVINO files can be fixed",
                hint="leave out --fix, and export the model with these values",
            )
        return importer(data, at, shapes)

    return import_model


def _with_own_shapes(importer: Callable[[bytes, At], ImportedModel]) -> Importer:
    """Returns an importer for a format whose files always contain the shapes of the inputs."""

    def import_model(data: bytes, at: At, shapes: Shapes) -> ImportedModel:
        if shapes:
            raise Unsupported("the file already fixes the shapes of its inputs", hint="leave out --input-shape")
        return importer(data, at)

    return _with_all_inputs(import_model)


IMPORTERS: dict[str, Importer] = {
    TFLITE: tflite.import_model,
    ONNX: onnx.import_model,
    TORCHSCRIPT: _with_all_inputs(torch.import_torchscript),
    PT2: _with_all_inputs(exported.import_exported),
    MXNET: _with_all_inputs(mxnet.import_model),
    OPENVINO: openvino.import_model,
    EXECUTORCH: _with_own_shapes(executorch.import_model),
    QNN: _with_own_shapes(qnn_text.import_model),
}


def add_importer(name: str, importer: Callable[[bytes, At], ImportedModel]) -> None:
    """Adds the importer of a dialect's format (`detect.add_format`)."""
    IMPORTERS[name] = _with_own_shapes(importer)


def import_model(
    data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None, fixed: Fixed | None = None
) -> ImportedModel:
    """Imports the model in a file, and applies the patterns of dialects that change values.

    Args:
        at: called before each operator is converted, with the operator and the name of its output.
        shapes: input name -> shape, for formats whose files do not contain shapes; "" means the only input.
        fixed: input name -> the elements in C order, or one value for all, for inputs that become constants.

    Raises:
        UnsupportedFormat: Octet does not read the file's format.
        MalformedModel: the file is damaged.
        Unsupported: Octet does not compile a part of the model. Both errors have a hint.
    """
    importer = IMPORTERS[format_of(io.BytesIO(data))]
    try:
        imported = _with_notices(importer(data, at, shapes or {}, fixed or {}))
        patterns = [name for name, each in PATTERNS.items() if each.changes_values]
        return _with_patterns(imported, patterns) if patterns else imported
    except (MalformedModel, Unsupported) as error:
        error.hint = error.hint or (_DAMAGED if isinstance(error, MalformedModel) else _CHANGE)
        raise


def _with_notices(imported: ImportedModel) -> ImportedModel:
    """Adds a notice for each input that has a fixed value."""
    fixed = [f"the input {each.spec.name} is fixed at {each}" for each in imported.signature.fixed]
    return replace(imported, notices=(*imported.notices, *fixed)) if fixed else imported


def _with_patterns(imported: ImportedModel, names: Sequence[str]) -> ImportedModel:
    """Applies the patterns that change values."""
    module, applied = apply_patterns(matched_form(imported.module), names)
    notices = tuple(f"the pattern {name} was applied {count} times" for name, count in Counter(applied).items())
    return replace(imported, module=module, notices=(*imported.notices, *notices)) if applied else imported
