"""Finds the tensors whose channels ONNX Runtime keeps last, though the file has them second.

Its quantized convolutions take images that way (optimizer/nhwc_transformer.cc): each stands between two transposes,
which then move through the operators between convolutions until they cancel (optimizer/transpose_optimization). What
lies between two convolutions in the end has no transpose left. It matters where real values are added: the order is
that of memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from service.compiler.importers.onnx.model import REQUANTIZE
from service.compiler.importers.qdq import Operator

_CONVOLUTION = "QLinearConv"
# Operators that transposes move through.
_MOVED = frozenset(
    {
        *("Abs", "Add", "Cast", "Clip", "Concat", "DequantizeLinear", "Div", "Erf", "Exp", "HardSigmoid", "HardSwish"),
        *("Identity", "LeakyRelu", "Log", "Max", "MaxPool", "Min", "Mul", "Neg", "PRelu", "Pad", "Pow"),
        *("QuantizeLinear", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Resize"),
        *("Sigmoid", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "Unsqueeze"),
        *("com.microsoft.QLinearAdd", "com.microsoft.QLinearAveragePool", "com.microsoft.QLinearConcat"),
        *("com.microsoft.QLinearGlobalAveragePool", "com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearMul"),
        *("com.microsoft.QLinearSigmoid", REQUANTIZE),
    }
)


def channels_last(operators: Iterable[Operator], computed: Iterable[str]) -> frozenset[str]:
    """Names of tensors between two convolutions.

    Args:
        operators: in an order in which they can be computed.
        computed: names of the model's inputs: what is neither these nor made by an operator is constant.
    """
    ordered = list(operators)
    wanted: set[str] = set()  # by a convolution, later on
    for operator in reversed(ordered):
        if operator.op_type == _CONVOLUTION:
            wanted.add(operator.inputs[0])
        elif operator.op_type in _MOVED and not wanted.isdisjoint(operator.outputs):
            wanted.update(operator.inputs)
    moved: set[str] = set()
    others = set(computed)
    for operator in ordered:
        if operator.op_type == _CONVOLUTION:
            moved.update(operator.outputs)
            continue
        # A transpose moves on where it makes fewer: more operands have one already than would get one.
        having = len(moved.intersection(operator.inputs))
        passes = operator.op_type in _MOVED and not wanted.isdisjoint(operator.outputs)
        if passes and having > len(others.intersection(operator.inputs)):
            moved.update(operator.outputs)
        else:
            others.update(operator.outputs)
    return frozenset(moved & wanted)
