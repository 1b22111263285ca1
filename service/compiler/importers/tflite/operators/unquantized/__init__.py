"""Operators that LiteRT computes only on values that are not quantized: functions of float32 values, bits of integers,
and reductions of booleans.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers import real as functions
from service.compiler.importers.tflite.operators import real, reduction
from service.compiler.importers.tflite.operators.rule import ANY_NUMBER, BOOL, FLOAT, INTEGERS, Rule
from service.compiler.importers.tflite.operators.unquantized import bits, powers, sums

_SMALL = frozenset({"float32", "int32"})
_ADDED = FLOAT | INTEGERS
_SHIFTED = frozenset({"int8", "int16", "int32"})
_BITS = frozenset({"int8", "uint8", "int16", "int32"})


def _function(of: functions.Function) -> Rule:
    return Rule(real.function(of), (1, 1), reads=FLOAT, writes=FLOAT)


def _stablehlo(make: Callable[..., relax.Call], dtypes: frozenset[str]) -> Rule:
    return Rule(real.plain(make), (2, 2), activations=2, reads=dtypes, writes=dtypes)


RULES: dict[str, Rule] = {
    "ADD_N": Rule(sums.add_n, (1, ANY_NUMBER), activations=None, reads=_SMALL, writes=_SMALL),
    "ATAN2": Rule(powers.atan2, (2, 2), activations=2, reads=FLOAT, writes=FLOAT),
    "BITCAST": Rule(bits.bitcast, (1, 1), reads=_BITS | _ADDED, writes=_BITS | _ADDED),
    "BITWISE_XOR": Rule(bits.exclusive_or, (2, 2), activations=2, reads=_BITS, writes=_BITS),
    "COS": _function(functions.of_relax(relax.op.cos)),
    "CUMSUM": Rule(sums.cumulative_sum, (2, 2), reads=_ADDED, writes=_ADDED),
    "FAKE_QUANT": Rule(powers.fake_quant, (1, 1), reads=FLOAT, writes=FLOAT),
    "L2_POOL_2D": Rule(sums.l2_pool2d, (1, 1), reads=FLOAT, writes=FLOAT),
    "LOG_SOFTMAX": Rule(powers.log_softmax, (1, 1), reads=FLOAT, writes=FLOAT),
    "LOCAL_RESPONSE_NORMALIZATION": Rule(sums.local_response_normalization, (1, 1), reads=FLOAT, writes=FLOAT),
    "POW": Rule(powers.power, (2, 2), activations=2, reads=_SMALL, writes=_SMALL),
    "REDUCE_ALL": Rule(reduction.of_bools(relax.op.min), (2, 2), reads=BOOL, writes=BOOL),
    "REDUCE_ANY": Rule(reduction.of_bools(relax.op.max), (2, 2), reads=BOOL, writes=BOOL),
    "RIGHT_SHIFT": Rule(bits.right_shift, (2, 2), activations=2, reads=_BITS, writes=_BITS),
    "SIGN": Rule(powers.sign, (1, 1), reads=_SMALL, writes=_SMALL),
    "SIN": _function(functions.of_relax(relax.op.sin)),
    "STABLEHLO_ADD": _stablehlo(relax.op.add, _ADDED),
    "STABLEHLO_AND": _stablehlo(relax.op.logical_and, BOOL),
    "STABLEHLO_MAXIMUM": _stablehlo(relax.op.maximum, _ADDED),
    "STABLEHLO_MINIMUM": _stablehlo(relax.op.minimum, _ADDED),
    "STABLEHLO_MULTIPLY": _stablehlo(relax.op.multiply, _ADDED),
    "STABLEHLO_SHIFT_LEFT": Rule(bits.left_shift, (2, 2), activations=2, reads=_SHIFTED, writes=_SHIFTED),
    "SQUARE": Rule(powers.square, (1, 1), reads=FLOAT, writes=FLOAT),
}
