"""The operators that are converted: a builtin's name -> what it takes, and the function that converts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators import (
    conversion,
    convolution,
    elementwise,
    fully_connected,
    movement,
    pooling,
    softmax,
    transposed,
    unary,
)

STORAGES = frozenset({"int8", "uint8"})
_INT8 = frozenset({"int8"})  # what LiteRT has no uint8 kernel for
_ANY_NUMBER = 1 << 16


@dataclass(frozen=True)
class Rule:
    """How one builtin operator is converted.

    Attributes:
        convert: emits its calls; the result is the operator's one output.
        arity: least and largest number of inputs.
        activations: how many inputs from `first` on are activations, whose dtype has to be one of `reads`; all if None.
        reads, writes: dtypes that the activations and the output may have.
    """

    convert: Callable[[Node], relax.Var]
    arity: tuple[int, int]
    activations: int | None = 1
    first: int = 0
    reads: frozenset[str] = STORAGES
    writes: frozenset[str] = STORAGES

    def activations_of(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Those of an operator's inputs that are activations."""
        return inputs[self.first : None if self.activations is None else self.first + self.activations]


RULES: Mapping[str, Rule] = {
    "ABS": Rule(unary.function("abs"), (1, 1), reads=_INT8, writes=_INT8),
    "ADD": Rule(elementwise.add, (2, 2), activations=2),
    "AVERAGE_POOL_2D": Rule(pooling.average_pool2d, (1, 1)),
    "CONCATENATION": Rule(movement.concatenation, (1, _ANY_NUMBER), activations=None),
    "CONV_2D": Rule(convolution.conv2d, (2, 3)),
    "DEPTHWISE_CONV_2D": Rule(convolution.depthwise_conv2d, (2, 3)),
    "DEQUANTIZE": Rule(conversion.dequantize, (1, 1), writes=frozenset({"float32"})),
    "ELU": Rule(unary.function("elu"), (1, 1), reads=_INT8, writes=_INT8),
    "EXP": Rule(unary.function("exp"), (1, 1), reads=_INT8, writes=_INT8),
    "FULLY_CONNECTED": Rule(fully_connected.fully_connected, (2, 3)),
    "GELU": Rule(unary.gelu, (1, 1)),
    "HARD_SWISH": Rule(unary.function("hard_swish"), (1, 1)),
    "LEAKY_RELU": Rule(unary.leaky_relu, (1, 1)),
    "LOG": Rule(unary.function("log"), (1, 1), reads=_INT8, writes=_INT8),
    "LOGISTIC": Rule(unary.function("logistic"), (1, 1)),
    "MAX_POOL_2D": Rule(pooling.max_pool2d, (1, 1)),
    "MEAN": Rule(pooling.mean, (2, 2)),
    "MUL": Rule(elementwise.mul, (2, 2), activations=2),
    "PAD": Rule(movement.pad, (2, 2)),
    "QUANTIZE": Rule(conversion.quantize, (1, 1), reads=STORAGES | {"float32"}),
    "RELU": Rule(unary.clamp, (1, 1)),
    "RELU6": Rule(unary.clamp, (1, 1)),
    "RELU_N1_TO_1": Rule(unary.clamp, (1, 1)),
    "RELU_0_TO_1": Rule(unary.clamp, (1, 1)),
    "RESHAPE": Rule(movement.reshape, (1, 2)),
    "RSQRT": Rule(unary.function("rsqrt"), (1, 1), reads=_INT8, writes=_INT8),
    "SOFTMAX": Rule(softmax.softmax, (1, 1)),
    "SQRT": Rule(unary.function("sqrt"), (1, 1), reads=_INT8, writes=_INT8),
    "SQUEEZE": Rule(movement.squeeze, (1, 1)),
    "TRANSPOSE_CONV": Rule(transposed.transpose_conv, (3, 4), first=2),
    "TANH": Rule(unary.function("tanh"), (1, 1)),
}
