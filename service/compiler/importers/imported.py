"""The common result of all importers."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import ModelSignature


@dataclass(frozen=True)
class ImportedModel:
    """A model in the compiler's representation.

    Attributes:
        module: one function, `main`. Its parameters are the model's inputs and states, and it returns the outputs and
            next states (a tuple if there are several), all in the signature's order. The body of `main` is a single
            dataflow block of QNN and plain Relax operators on static shapes.
        signature: the same inputs and outputs, as clients name them.
        format: a name of `detect.FORMATS`.
        metadata: the labels and the preprocessing that the file describes.
        notices: one sentence for each part of the file that was ignored.
    """

    module: tvm.IRModule
    signature: ModelSignature
    format: str
    metadata: ModelMetadata = NOTHING
    notices: tuple[str, ...] = ()
