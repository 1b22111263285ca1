"""Reads the calls of operators in an imported module."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import QuantizedType


def calls(imported: ImportedModel) -> Iterator[tuple[str, relax.Call]]:
    for block in imported.module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                yield binding.value.op.name.removeprefix("relax."), binding.value


def names(imported: ImportedModel) -> list[str]:
    return [name for name, _ in calls(imported)]


def call(imported: ImportedModel, wanted: str) -> relax.Call:
    (found,) = (value for name, value in calls(imported) if name == wanted)
    return found


def ints(of: relax.Call, attribute: str) -> list[int]:
    return [int(value) for value in of.attrs[attribute]]


def quantized(of: relax.Call, attribute: str) -> QuantizedType:
    return parse(str(of.attrs[attribute]))
