"""Finds the tensors that ONNX Runtime stores with channels last, although channels are the second axis in the file.

ONNX Runtime's quantized convolutions need images in that layout (optimizer/nhwc_transformer.cc), so the optimizer puts
each of these convolutions between two transposes. The transposes then move through the operators between convolutions
until they cancel (optimizer/transpose_optimization). Finally, no transpose is left between two convolutions. This
affects sums of real values, because ONNX Runtime adds in memory order.
"""

from __future__ import annotations

from collections.abc import Iterable

from service.compiler.importers.onnx.model import REQUANTIZE
from service.compiler.importers.qdq import Operator

_CONVOLUTION = "QLinearConv"
# Operators through which the optimizer moves transposes.
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
    """Returns the names of tensors between two convolutions.

    Args:
        operators: the operators in an order in which they can be computed.
        computed: names of the model's inputs. All other tensors that no operator computes are constants.
    """
    ordered = list(operators)
    wanted: set[str] = set()  # names of tensors that a later convolution reads, directly or through other operators
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
        # A transpose moves through an operator if that reduces the number of transposes: if the operands that have a
        # transpose are more than the operands that would get a new transpose.
        having = len(moved.intersection(operator.inputs))
        passes = operator.op_type in _MOVED and not wanted.isdisjoint(operator.outputs)
        if passes and having > len(others.intersection(operator.inputs)):
            moved.update(operator.outputs)
        else:
            others.update(operator.outputs)
    return frozenset(moved & wanted)
