"""Replaces dilated convolutions that consist of three operators (SPACE_TO_BATCH_ND, a convolution, and
BATCH_TO_SPACE_ND) by one. Old converters write this form. Today's converters write it for models with a variable batch
size. Each output is the same sum of the same products as in one convolution with that dilation, padded with the same
zero point. One operator saves the copies that the outer two make.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeVar

from service.compiler.importers.tflite.geometry import VALID
from service.compiler.importers.tflite.model import Operator, Subgraph
from service.core.models.arrays import Array

Graph = TypeVar("Graph", bound=Subgraph)
EXPLICIT_PADDING = "explicit_padding"  # top, left, bottom, right: an option that only this importer sets
_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_PLAIN = {"stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1, "padding": VALID}


def join_dilated(model: Graph) -> Graph:
    """Returns `model` with the three operators of each dilated convolution replaced by one."""
    makers = {operator.outputs[0]: operator for operator in model.operators if len(operator.outputs) == 1}
    uses = Counter(index for operator in model.operators for index in operator.inputs)
    uses.update(model.outputs)
    joined: dict[int, Operator] = {}  # index of the last of the three operators -> the operator that replaces them
    dropped: set[int] = set()
    for last in model.operators:
        core = makers.get(last.inputs[0]) if last.name == "BATCH_TO_SPACE_ND" else None
        first = makers.get(core.inputs[0]) if core is not None and core.name in _CONVOLUTIONS else None
        if core is None or first is None or first.name != "SPACE_TO_BATCH_ND":
            continue
        if uses[core.outputs[0]] == uses[first.outputs[0]] == 1 and (whole := _join_three(model, first, core, last)):
            joined[last.index] = whole
            dropped |= {first.index, core.index}
    operators = (joined.get(each.index, each) for each in model.operators if each.index not in dropped)
    return replace(model, operators=tuple(operators))


def _join_three(model: Subgraph, first: Operator, core: Operator, last: Operator) -> Operator | None:
    """Returns the three operators as one, or None if they compute more than a dilated convolution."""
    blocks, paddings = (_pair(model, index) for index in first.inputs[1:3])
    blocks_back, crops = (_pair(model, index) for index in last.inputs[1:3])
    if blocks is None or paddings is None or blocks_back is None or crops is None or core.options is None:
        return None
    if _is_hybrid(model, core):  # each of the three parts has its own range
        return None
    if blocks.shape != (2,) or paddings.shape != (2, 2) or crops.shape != (2, 2) or min(blocks) < 1:
        return None
    ends = (paddings - crops).tolist()
    plain = all(core.options.get(name) == value for name, value in _PLAIN.items())
    same = (blocks == blocks_back).all() and _alike(model, first.inputs[0], core.inputs[0])
    if not (plain and same and _alike(model, core.outputs[0], last.outputs[0])):
        return None
    if crops[:, 0].any() or paddings.min() < 0 or min(ends[0] + ends[1]) < 0:
        return None
    options = {
        **core.options,
        "dilation_h_factor": int(blocks[0]),
        "dilation_w_factor": int(blocks[1]),
        EXPLICIT_PADDING: (ends[0][0], ends[1][0], ends[0][1], ends[1][1]),
    }
    return replace(core, inputs=(first.inputs[0], *core.inputs[1:]), outputs=last.outputs, options=options)


def _is_hybrid(model: Subgraph, core: Operator) -> bool:
    dtypes = [model.tensors[index].dtype for index in core.inputs[:2] if index >= 0]
    return dtypes[0] == "float32" and dtypes[-1] != "float32"


def _pair(model: Subgraph, index: int) -> Array | None:
    data = model.tensors[index].data if index >= 0 else None
    return data if data is not None and data.dtype.kind == "i" else None


def _alike(model: Subgraph, one: int, other: int) -> bool:
    first, second = model.tensors[one], model.tensors[other]
    return (first.dtype, first.quantization) == (second.dtype, second.quantization)
