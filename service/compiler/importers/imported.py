"""The common result of all importers."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from service.core.metadata import NOTHING, ModelMetadata
from service.core.signature import ModelSignature


@dataclass(frozen=True)
class ImportedModel:
    """A model in the compiler's own terms.

    Attributes:
        module: one function, `main`, from the model's inputs and states to its outputs and next states (a tuple if
            there are several), all in the signature's order; a single dataflow block of QNN and plain Relax operators
            on static shapes.
        signature: the same inputs and outputs, as clients name them.
        format: a name of `detect.FORMATS`.
        metadata: labels and preprocessing from the file.
        notices: one sentence for each part of the file that was left out.
    """

    module: tvm.IRModule
    signature: ModelSignature
    format: str
    metadata: ModelMetadata = NOTHING
    notices: tuple[str, ...] = ()
