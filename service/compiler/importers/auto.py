"""Imports a file of whatever format it is."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

from service.compiler.importers.detect import MXNET, ONNX, PT2, TFLITE, TORCHSCRIPT, format_of
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.mxnet import importer as mxnet
from service.compiler.importers.onnx import importer as onnx
from service.compiler.importers.tflite import importer as tflite
from service.compiler.importers.torch import importer as torch
from service.compiler.importers.torch.exported import importer as exported
from service.core.errors import Unsupported

At = Callable[[str, str], None]
Shapes = Mapping[str, Sequence[int]]


def _said_by_the_file(importer: Callable[[bytes, At], ImportedModel]) -> Callable[[bytes, At, Shapes], ImportedModel]:
    """An importer of files that say what shapes their inputs have."""

    def import_model(data: bytes, at: At, shapes: Shapes) -> ImportedModel:
        if shapes:
            raise Unsupported("the file already fixes the shapes of its inputs", hint="leave out --input-shape")
        return importer(data, at)

    return import_model


IMPORTERS: Mapping[str, Callable[[bytes, At, Shapes], ImportedModel]] = {
    TFLITE: _said_by_the_file(tflite.import_model),
    ONNX: onnx.import_model,
    TORCHSCRIPT: torch.import_torchscript,
    PT2: exported.import_exported,
    MXNET: mxnet.import_model,
}


def import_model(data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None) -> ImportedModel:
    """The model in a file.

    Args:
        at: told of every operator before it is converted, and of its output.
        shapes: of the inputs by name, for formats whose files do not say them; "" stands for the only input.

    Raises:
        UnsupportedFormat: the file is of no format that Octet reads.
        MalformedModel: it is damaged.
        Unsupported: it holds what Octet does not compile.
    """
    return IMPORTERS[format_of(io.BytesIO(data))](data, at, shapes or {})
