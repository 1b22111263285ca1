"""A model's own facts, read off its imported form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from service.compiler import coverage
from service.compiler.importers import detect
from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn import graph
from service.compiler.qnn.transposes import move_transposes
from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.facts import Facts, Scheme

_ACCUMULATING = ("int32", "int64")


def facts_of(imported: ImportedModel) -> Facts:
    """The facts of `imported`, without the permutations that its importer put around each operator."""
    function = graph.main_of(move_transposes(imported.module))
    constants = list(_constants(function))
    sizes = [math.prod(graph.shape_of(constant)) for constant in constants]
    weights, activations = _types(function)
    covered = coverage.report(imported.module)
    return Facts(
        imported.format,
        imported.signature,
        dict(sorted(_operators(function).items())),
        covered["macs"],
        sum(sizes),
        sum(constant.value.numpy().nbytes for constant in constants),
        _scheme(weights),
        _scheme(activations),
        imported.metadata,
        (*imported.notices, *_not_quantized(covered, imported.format)),
    )


def _not_quantized(covered: Mapping[str, Any], format_: str) -> Iterator[str]:
    """What someone who expects a quantized model has to be told of a float one."""
    if any(each["reason"] == coverage.FLOAT for each in covered["floating"]):
        how = "its framework" if format_ == detect.MXNET else "octet quantize (docs/how-to/quantize.md)"
        yield f"this model is float and not quantized: quantize it with {how}"


def _operators(function: relax.Function) -> Counter[str]:
    return Counter(
        str(value.op.name).removeprefix("relax.").removeprefix("qnn.")
        for _, value in graph.bindings(function)
        if isinstance(value, relax.Call) and hasattr(value.op, "name")
    )


def _constants(function: relax.Function) -> Iterator[tvm.ir.GenericConst]:
    """Every constant operand, once."""
    seen: list[tvm.ir.GenericConst] = []
    for _, value in graph.bindings(function):
        for arg in value.args if isinstance(value, relax.Call) else []:
            if isinstance(arg, tvm.ir.GenericConst) and not any(arg.same_as(other) for other in seen):
                seen.append(arg)
                yield arg


def _types(function: relax.Function) -> tuple[list[QuantizedType], list[QuantizedType]]:
    """The types of weights, and of all other operands and results that are not accumulators."""
    weights, activations = [], []
    for _, _, operation in graph.operations(function):
        if operation is None:
            continue
        for name, text in operation.call.attrs.items():
            if name == "weight_type":
                weights.append(parse(str(text)))
            elif name.endswith("_type") or name == "type":
                activations.append(parse(str(text)))
    return weights, [each for each in activations if each.storage not in _ACCUMULATING]


def _scheme(types: Sequence[QuantizedType]) -> Scheme | None:
    if not types:
        return None
    granularity = {
        "per-tensor" if each.is_per_tensor else "per-axis" if each.blocks is None else "per-block" for each in types
    }
    return Scheme(
        tuple(sorted({each.storage for each in types})),
        tuple(sorted(granularity)),
        all(set(each.zero_points) == {_middle(each)} for each in types),
    )


def _middle(quantized: QuantizedType) -> int:
    low, high = STORAGE_RANGES[quantized.storage]
    return (low + high + 1) // 2
