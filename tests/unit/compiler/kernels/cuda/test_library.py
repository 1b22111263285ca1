"""On a GPU, small networks that concatenate, copy and reorder tensors compute the same bytes as the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.library import CudaLibrary
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.cuda.models import CardModel
from tests.support.qnn_models import Emit, float32, module_of, u8

X, WIDER = u8(0.05, 128), u8(0.08, 100)
MODE = get_mode(ONNXRUNTIME)
Body = Callable[[Emit, list[relax.Var]], relax.Var]


def layer(emit: Emit, x: relax.Var, filters: int, out_type: QuantizedType = X, size: int = 1) -> relax.Var:
    rng, channels = np.random.default_rng(filters), int(x.ty.shape[3])
    weight_type = QuantizedType("int8", (float32(0.003),))
    weight = relax.const(rng.integers(-127, 128, (filters, size, size, channels)).astype(np.int8))
    sums = emit(ops.conv2d(x, weight, None, X, weight_type, padding=(size // 2,) * 4))
    return emit(ops.requantize(sums, accumulator_type(X, weight_type, axis=3), out_type))


def joined_in_place(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
    """Concatenates three parts. The first does not fill a block and is written directly, and the others are copied.

    The result has a halo.
    """
    first, second, third = layer(emit, inputs[0], 20), layer(emit, inputs[0], 44), layer(emit, inputs[0], 5, WIDER)
    joined = emit(ops.concatenate([first, second, third], [X, X, WIDER], X, 3))
    return layer(emit, joined, 16, size=3)


def joined_twice(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
    """Concatenates a tensor with itself. The kernel of the layer writes the first copy of the tensor, and a
    concatenation kernel writes the second copy."""
    part = layer(emit, inputs[0], 20)
    joined = emit(ops.concatenate([part, part], [X, X], X, 3))
    return layer(emit, joined, 16)


def shuffled(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
    stays, taken = layer(emit, inputs[0], 29), layer(emit, inputs[0], 29, WIDER)
    joined = emit(ops.concatenate([stays, taken], [X, WIDER], X, 3))
    groups = emit(relax.op.reshape(joined, [1, 6, 6, 2, 29]))
    moved = emit(relax.op.reshape(emit(relax.op.permute_dims(groups, (0, 1, 2, 4, 3))), [1, 6, 6, 58]))
    first, second = (emit(relax.op.strided_slice(moved, [3], [begin], [begin + 29], [1])) for begin in (0, 29))
    return emit(ops.add(layer(emit, first, 29), layer(emit, second, 29), X, X, X))


def excited(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
    """Multiplies each channel by a function of the channel's mean. The result is `[N, C, H, W]`."""
    whole = layer(emit, inputs[0], 33)
    mean = emit(ops.mean(whole, X, WIDER, axes=(1, 2), keepdims=True))
    weights = emit(ops.table(mean, WIDER, X, list(range(256))[::-1]))
    return emit(relax.op.permute_dims(emit(ops.mul(whole, weights, X, X, WIDER)), (0, 3, 1, 2)))


@pytest.mark.parametrize(
    ("body", "kernels"),
    [
        (joined_in_place, {"pack", "conv", "concat", "unpack"}),
        (joined_twice, {"pack", "conv", "concat", "unpack"}),
        (shuffled, {"pack", "conv", "move", "unpack"}),
        (excited, {"pack", "conv", "mean", "table", "mul", "unpack"}),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_gpu_computes_the_oracles_bytes(body: Body, kernels: set[str]) -> None:
    module = module_of([((1, 6, 6, 16), "uint8")], body)
    inputs = [np.random.default_rng(0).integers(0, 256, (1, 6, 6, 16)).astype(np.uint8)]
    (expected,) = oracle.run(module, MODE, inputs)
    model = CardModel(module, ONNXRUNTIME, CudaLibrary(GPUS["sm_80"], MODE))
    assert {kernel.family for kernel in model.kernels.values()} == kernels
    for seed in range(2):
        (actual,) = model(inputs, seed)
        np.testing.assert_array_equal(actual, expected)
