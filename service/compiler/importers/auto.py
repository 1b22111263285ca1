"""Imports a model file of any supported format."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from service.compiler.importers import qnn_text
from service.compiler.importers.builder.module import At, Shapes
from service.compiler.importers.detect import MXNET, ONNX, OPENVINO, PT2, QNN, TFLITE, TORCHSCRIPT, format_of
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.mxnet import importer as mxnet
from service.compiler.importers.onnx import importer as onnx
from service.compiler.importers.openvino import importer as openvino
from service.compiler.importers.tflite import importer as tflite
from service.compiler.importers.torch import importer as torch
from service.compiler.importers.torch.exported import importer as exported
from service.compiler.qnn.patterns import PATTERNS, apply_patterns, matched_form
from service.core.errors import MalformedModel, Unsupported

_DAMAGED = "the file is damaged, or the program that wrote it has a bug: export the model again"
_CHANGE = "change this part of the model and export it again, or cut the model before it"


def _with_fixed_shapes(importer: Callable[[bytes, At], ImportedModel]) -> Callable[[bytes, At, Shapes], ImportedModel]:
    """Returns an importer for a format whose files always contain the shapes of the inputs."""

    def import_model(data: bytes, at: At, shapes: Shapes) -> ImportedModel:
        if shapes:
            raise Unsupported("the file already fixes the shapes of its inputs", hint="leave out --input-shape")
        return importer(data, at)

    return import_model


IMPORTERS: dict[str, Callable[[bytes, At, Shapes], ImportedModel]] = {
    TFLITE: tflite.import_model,
    ONNX: onnx.import_model,
    TORCHSCRIPT: torch.import_torchscript,
    PT2: exported.import_exported,
    MXNET: mxnet.import_model,
    OPENVINO: openvino.import_model,
    QNN: _with_fixed_shapes(qnn_text.import_model),
}


def add_importer(name: str, importer: Callable[[bytes, At], ImportedModel]) -> None:
    """Adds the importer of a dialect's format (`detect.add_format`)."""
    IMPORTERS[name] = _with_fixed_shapes(importer)


def import_model(data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None) -> ImportedModel:
    """Imports the model in a file, and applies the patterns of dialects that change values.

    Args:
        at: called before each operator is converted, with the operator and the name of its output.
        shapes: input name -> shape, for formats whose files do not contain shapes; "" means the only input.

    Raises:
        UnsupportedFormat: Octet does not read the file's format.
        MalformedModel: the file is damaged.
        Unsupported: Octet does not compile a part of the model. Both errors have a hint.
    """
    importer = IMPORTERS[format_of(io.BytesIO(data))]
    try:
        imported = importer(data, at, shapes or {})
        patterns = [name for name, each in PATTERNS.items() if each.changes_values]
        return _with_patterns(imported, patterns) if patterns else imported
    except (MalformedModel, Unsupported) as error:
        error.hint = error.hint or (_DAMAGED if isinstance(error, MalformedModel) else _CHANGE)
        raise


def _with_patterns(imported: ImportedModel, names: Sequence[str]) -> ImportedModel:
    """Applies the patterns that change values."""
    module, applied = apply_patterns(matched_form(imported.module), names)
    notices = tuple(f"the pattern {name} was applied {count} times" for name, count in Counter(applied).items())
    return replace(imported, module=module, notices=(*imported.notices, *notices)) if applied else imported
