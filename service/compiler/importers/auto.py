"""Imports a file of whatever format it is."""

from __future__ import annotations

from collections.abc import Callable

from service.compiler.importers.detect import HEAD_BYTES, TFLITE, detect_format
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.tflite import importer as tflite

IMPORTERS = {TFLITE: tflite.import_model}


def import_model(data: bytes, at: Callable[[str, str], None] = lambda op, tensor: None) -> ImportedModel:
    """The model in a file; `at(operator, tensor)` is told of every operator before it is converted.

    Raises:
        UnsupportedFormat: the file is of no format that Octet reads.
        MalformedModel: it is damaged.
        Unsupported: it holds what Octet does not compile.
    """
    return IMPORTERS[detect_format(data[:HEAD_BYTES])](data, at)
