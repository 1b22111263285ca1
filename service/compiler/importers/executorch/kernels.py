"""Calls of kernels, as PyTorch's operators.

A kernel has the arguments of its operator, then the tensors into which it writes, then its results, which are the same
tensors. Its name differs from the operator's if the operator returns a view: `aten::permute_copy` is `aten::permute`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.compiler.importers.executorch.program import Kernel, Listed, Plan, Tensor
from service.compiler.importers.torch import tensors as torch
from service.compiler.importers.torch.graph import Graph, rule_of
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput, MalformedModel, Unsupported

_COPY = "_copy"
# Kernels that copy a tensor to another order of axes in memory, or to another type.
_MEMORY_COPIES = (
    "dim_order_ops::_to_dim_order_copy",
    "dim_order_ops::_clone_dim_order",
    "aten::_to_copy",
    "aten::to_copy",
    "aten::clone",
    "aten::lift_fresh_copy",
    "aten::alias_copy",
    "aten::detach_copy",
)
_VIEW = "executorch_prim::et_view"
_QUANTIZED = "quantized_decomposed::"
_SIZES = {"aten::sym_size": "aten::size"}
# Kernels with another form than the operator of PyTorch whose rule converts them.
_NATIVE = {
    "aten::_log_softmax": ("aten::log_softmax", 2),
    "aten::_softmax": ("aten::softmax", 2),
    "aten::native_dropout": ("aten::dropout", 0),
    "aten::upsample_bilinear2d": ("aten::upsample_bilinear2d", 0),
}
_STORAGES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32"}


def called(graph: Graph, plan: Plan, kernel: Kernel, values: dict[int, Any]) -> None:
    """Converts the call of a kernel, and adds its results to `values`.

    Raises:
        MalformedModel: the call has fewer arguments than results.
        Unsupported: the kernel changes a tensor that was computed before.
    """
    operands, results = _split(plan, kernel)
    for index in results:
        if index in values:
            raise Unsupported(
                f"{kernel.name} changes a tensor that was computed before, which cannot be compiled",
                op=kernel.name,
                hint="export the model without states that it changes",
            )
    arguments = [_argument(plan, index, values) for index in operands]
    label = f"value_{results[0]}" if results else ""
    made = _converted(graph, plan, kernel, arguments, results, label)
    several = isinstance(made, list | tuple)
    parts = list(made) if several else [made] * len(results)
    if len(parts) < len(results):
        raise Unsupported(f"{kernel.name} has {len(results)} results, of which {len(parts)} can be compiled")
    values |= dict(zip(results, parts, strict=False))


def _split(plan: Plan, kernel: Kernel) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the operands of a call, and its results."""
    if not kernel.arguments:
        raise MalformedModel(f"{kernel.name} has no arguments")
    last = kernel.arguments[-1]
    listed = plan.values[last]
    results = tuple(listed.items) if isinstance(listed, Listed) else (last,)
    before = kernel.arguments[:-1]
    if any(index < 0 for index in results):
        raise MalformedModel(f"{kernel.name} has no tensor for one of its results")
    if before[-1:] == (last,):  # a single result, or a list of results
        return before[:-1], results
    if before[len(before) - len(results) :] == results:
        return before[: len(before) - len(results)], results
    return before, results


def _argument(plan: Plan, index: int, values: dict[int, Any]) -> Any:
    found = plan.values[index]
    if index in values:
        return values[index]
    if isinstance(found, Listed):
        return [None if each < 0 else _argument(plan, each, values) for each in found.items]
    if isinstance(found, Tensor):
        if found.data is None:
            raise MalformedModel(f"the program reads tensor {index} before it is computed")
        return constant(found)
    return found


def constant(tensor: Tensor) -> torch.Tensor:
    """Returns a constant of the plan, as the rules of PyTorch's operators take it."""
    assert tensor.data is not None
    halves = tensor.dtype in ("float16", "bfloat16", "float64")
    data = tensor.data.astype(np.float32) if halves else np.ascontiguousarray(tensor.data)
    return torch.Tensor(data.reshape(tensor.shape))


def _converted(
    graph: Graph, plan: Plan, kernel: Kernel, arguments: list[Any], results: Sequence[int], label: str
) -> Any:
    name = kernel.name
    if name in _MEMORY_COPIES:
        result = plan.values[results[0]]
        assert isinstance(result, Tensor)
        return graph.call("aten::to", label, [arguments[0], result.dtype], {})
    if name == _VIEW:
        return graph.call("aten::view", label, arguments[:2], {})
    if name.startswith(_QUANTIZED):
        converted = _conversion(graph, name.removeprefix(_QUANTIZED), arguments, label)
        if converted is not None:
            return converted
    if name in _NATIVE:
        other, count = _NATIVE[name]
        return graph.call(other, label, arguments[:count] if count else arguments, {})
    if name == "aten::native_layer_norm":
        x, shape, weight, bias, epsilon = arguments
        return [graph.call("aten::layer_norm", label, [x, shape, weight, bias, epsilon], {})] + [None] * 2
    name = _SIZES.get(name, name).removesuffix(_COPY)
    return graph.call(name, label, *_bound(name, arguments))


def _bound(name: str, arguments: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments by position, and those that the operator's rule takes by name. (A kernel receives all of
    them by position.) Arguments that the rule does not have are left out if they are the defaults None or false.
    """
    rule = rule_of(name, arguments)
    if rule is None:
        return arguments, {}
    kinds = inspect.signature(rule).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in kinds):
        return arguments, {}
    count = sum(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in kinds) - 1  # without the node
    rest = arguments[count:]
    names = [each.name for each in kinds if each.kind is inspect.Parameter.KEYWORD_ONLY]
    named = dict(zip(names, rest, strict=False))
    left = rest[len(names) :]
    if any(each is not None and each is not False for each in left):
        return arguments, {}
    return arguments[:count], named


def _conversion(graph: Graph, name: str, arguments: list[Any], label: str) -> Any:
    """Converts a quantization or a dequantization with constant parameters. Returns None for other kernels."""
    quantizes = name.startswith("quantize_per_")
    if not name.removeprefix("de").startswith("quantize_per_") or len(arguments) < 6:
        return None
    per_channel = name.endswith("per_channel")
    if not per_channel and not name.endswith("per_tensor"):
        return None
    scales, points = arguments[1:3]
    axis = arguments[3] if per_channel else None
    bounds = slice(4, 6) if per_channel else slice(3, 5)
    storage = _STORAGES.get(arguments[bounds.stop]) if len(arguments) > bounds.stop else None
    if isinstance(scales, Value) or isinstance(points, Value) or storage is None:
        return None
    low, high = arguments[bounds]
    numbers = [
        each.data.reshape(-1).tolist() if isinstance(each, torch.Tensor) else [each] for each in (scales, points)
    ]
    try:
        type_ = QuantizedType(
            storage,
            tuple(float(np.float32(scale)) for scale in numbers[0]),
            tuple(int(point) for point in numbers[1]),
            axis=axis,
            storage_min=low,
            storage_max=high,
        )
    except (InvalidInput, TypeError, ValueError) as error:
        raise MalformedModel(f"{name} has parameters that are not a quantization: {error}") from error
    if quantizes:
        return graph.call("octet::quantize", label, arguments[:1], {"out_type": type_})
    return graph.call("octet::dequantize", label, arguments[:1], {"out_type": type_, "clamp": None})
