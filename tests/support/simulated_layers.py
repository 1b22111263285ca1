"""Models of one layer, for tests of their simulated form."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, module_of

MODE = get_mode(ONNXRUNTIME)


U8, S8 = QuantizedType("uint8", (0.5,), (128,)), QuantizedType("int8", (0.25,), (3,))


PER_AXIS = QuantizedType("int8", (0.25, 0.5), axis=0)


BIAS = np.array([300, -200], np.int32)


def layer(kind: str, seed: int = 0) -> tvm.IRModule:
    """Returns a model that quantizes real values, computes sums with one operator, requantizes, and dequantizes."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> relax.Constant:
        return relax.const(rng.integers(-127, 128, shape).astype(np.int8))

    def body(emit: Emit, params: list[relax.Var]) -> relax.Var:
        x = emit(ops.quantize(params[0], U8))
        if kind == "conv2d":
            sums = ops.conv2d(x, weights(2, 3, 3, 4), relax.const(BIAS), U8, PER_AXIS, padding=(1, 1, 1, 1))
        elif kind == "conv2d_transpose":
            sums = ops.conv2d_transpose(x, weights(2, 3, 3, 4), None, U8, S8, strides=(2, 2), padding=(1, 1, 0, 0))
        elif kind == "dense":
            sums = ops.dense(x, weights(2, 20), relax.const(BIAS), U8, S8)
        else:
            sums = ops.matmul(x, x, U8, U8)
        axis = 3 if kind == "conv2d" else 1
        sum_type = accumulator_type(U8, U8 if kind == "matmul" else PER_AXIS if kind == "conv2d" else S8, axis)
        return emit(ops.dequantize(emit(ops.requantize(emit(sums), sum_type, U8)), U8))

    shape = (1, 5, 6, 4) if "conv" in kind else (20, 20)
    return module_of([(shape, "float32")], body)


def inputs_of(module: tvm.IRModule, seed: int) -> list[np.ndarray[Any, Any]]:
    shape = [int(dim) for dim in module["main"].params[0].ty.shape]
    return [np.random.default_rng(seed).normal(0, 20, shape).astype(np.float32)]
