"""Facts about a model (`Facts`), derived from its imported form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from service.compiler.importers import detect
from service.compiler.importers.imported import ImportedModel
from service.compiler.qnn import coverage, graph
from service.compiler.qnn.lookup import bits_of
from service.compiler.qnn.operation import value_of
from service.compiler.qnn.transposes import move_transposes
from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.artifacts.floating import group_floating, is_float
from service.core.models.facts import Facts, Scheme

_ACCUMULATING = ("int32", "int64")
_Parts = tuple[str, str, bool]  # the storage type, the granularity and the symmetry of one tensor's quantization


def facts_of(imported: ImportedModel) -> Facts:
    """Returns the facts of `imported`. The permutations that its importer put around each operator do not count."""
    function = graph.main_of(move_transposes(imported.module))
    constants = list(_constants(function))
    sizes = [math.prod(graph.shape_of(constant)) for constant in constants]
    weights, activations = _types(function)
    blocks = [*_blocks(function)]
    covered = coverage.report(imported.module)
    return Facts(
        imported.format,
        imported.signature,
        dict(sorted(_operators(function).items())),
        covered["macs"],
        sum(sizes),
        sum(constant.value.numpy().nbytes for constant in constants),
        _scheme([*map(_parts, weights), *blocks, *_tables(function)]),
        _scheme([*map(_parts, activations)]),
        imported.metadata,
        (*imported.notices, *_not_quantized(covered, imported.format)),
        group_floating(covered["floating"]),
        covered["integer_macs"],
        covered.get("computes", ""),
    )


def _not_quantized(covered: Mapping[str, Any], format_: str) -> Iterator[str]:
    """Yields the notice for a float model. The user may have expected a quantized model."""
    if is_float(covered):
        how = "its framework" if format_ == detect.MXNET else "octet quantize (docs/how-to/quantize.md)"
        yield f"this model is float and not quantized: quantize it with {how}"


def _operators(function: relax.Function) -> Counter[str]:
    return Counter(
        str(value.op.name).removeprefix("relax.").removeprefix("qnn.")
        for _, value in graph.bindings(function)
        if isinstance(value, relax.Call) and hasattr(value.op, "name")
    )


def _constants(function: relax.Function) -> Iterator[tvm.ir.GenericConst]:
    """Yields each constant operand, without repetition."""
    seen: list[tvm.ir.GenericConst] = []
    for _, value in graph.bindings(function):
        for arg in value.args if isinstance(value, relax.Call) else []:
            if isinstance(arg, tvm.ir.GenericConst) and not any(arg.same_as(other) for other in seen):
                seen.append(arg)
                yield arg


def _types(function: relax.Function) -> tuple[list[QuantizedType], list[QuantizedType]]:
    """Returns the types of weights, and of all other operands and results that are not accumulators."""
    weights, activations = [], []
    for _, _, operation in graph.operations(function):
        if operation is None:
            continue
        is_weight = operation.name == "qnn.dequantize" and isinstance(operation.call.args[0], tvm.ir.GenericConst)
        for name, text in operation.call.attrs.items():
            if name == "weight_type" or is_weight:
                weights.append(parse(str(text)))
            elif name.endswith("_type") or name == "type":
                activations.append(parse(str(text)))
    return weights, [each for each in activations if each.storage not in _ACCUMULATING]


def _blocks(function: relax.Function) -> Iterator[_Parts]:
    """Yields the quantization of weights in blocks. The scales and zero points of such weights are operands."""
    for _, _, operation in graph.operations(function):
        if operation is not None and operation.name == "qnn.block_matmul":
            bits, points = operation.integer("bits"), operation.call.args[3]
            known = isinstance(points, tvm.ir.GenericConst)
            is_symmetric = known and bool((points.value.numpy() == 1 << (bits - 1)).all())
            yield f"uint{bits}", "per-block", is_symmetric


def _tables(function: relax.Function) -> Iterator[_Parts]:
    """Yields the quantization of tables in blocks whose rows are read and then dequantized (`qnn.lookup`)."""
    following = {arg: value for _, value in graph.bindings(function) for arg in graph.variables(value)}
    for var, value in graph.bindings(function):
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.take":
            table = value_of(value.args[0])
            reader = getattr(getattr(following.get(var), "op", None), "name", "")
            if table is not None and table.ndim > 1 and table.dtype.kind in "iu" and reader == "relax.astype":
                sign = "uint" if table.dtype.kind == "u" else "int"
                yield f"{sign}{bits_of(table)}", "per-block", False


def _parts(quantized: QuantizedType) -> _Parts:
    granularity = "per-block" if quantized.blocks is not None else "per-axis"
    is_symmetric = set(quantized.zero_points) == {_middle(quantized)}
    return quantized.storage, "per-tensor" if quantized.is_per_tensor else granularity, is_symmetric


def _scheme(parts: Sequence[_Parts]) -> Scheme | None:
    if not parts:
        return None
    storage, granularity, symmetric = zip(*parts, strict=True)
    return Scheme(tuple(sorted({*storage})), tuple(sorted({*granularity})), all(symmetric))


def _middle(quantized: QuantizedType) -> int:
    low, high = STORAGE_RANGES[quantized.storage]
    return (low + high + 1) // 2
