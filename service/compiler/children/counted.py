"""Turns an imported model into one that counts the values which it stores."""

from __future__ import annotations

from dataclasses import replace

from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn.counting import count_values
from service.core.errors import Unsupported
from service.core.models.ranges import LENGTH, StoredRange
from service.core.models.signature import TensorSpec


def counted(imported: ImportedModel) -> tuple[ImportedModel, tuple[StoredRange, ...]]:
    """Returns the model with one additional output for each tensor whose values are counted, and these tensors.

    Raises:
        Unsupported: the model keeps state from one call to the next, or stores no values that could be clipped.
    """
    if imported.signature.states:
        raise Unsupported("the values of a model that keeps state between calls cannot be counted")
    counting = count_values(imported.module)
    if not counting.ranges:
        raise Unsupported("no operator of this model stores values that could be clipped")
    outputs = [TensorSpec(f"counts of {each.tensor}", "INT64", (LENGTH,)) for each in counting.ranges]
    signature = replace(imported.signature, outputs=(*imported.signature.outputs, *outputs))
    return replace(imported, module=counting.module, signature=signature), counting.ranges
