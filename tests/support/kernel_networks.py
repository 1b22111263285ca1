"""Small quantized networks whose layers and types a seeded generator chooses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.qnn import ops
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType, accumulator_type
from service.core.models.arrays import Array
from tests.support.qnn_models import Emit, float32


@dataclass
class Tensor:
    var: relax.Var
    shape: tuple[int, ...]
    type: QuantizedType


class Network:
    """Emits layers one by one. A seeded generator makes all choices."""

    def __init__(self, emit: Emit, rng: np.random.Generator, storage: str) -> None:
        self.emit, self.rng, self.storage = emit, rng, storage
        self.shared: QuantizedType | None = None  # the type of all tensors; if None, each tensor gets a random type

    def type(self) -> QuantizedType:
        if self.shared is not None:
            return self.shared
        low = -128 if self.storage == "int8" else 0
        zero_point = int(self.rng.choice([low, low + 128, low + int(self.rng.integers(0, 256))]))
        return QuantizedType(self.storage, (float32(self.rng.uniform(0.01, 0.1)),), (zero_point,))

    def weights(self, filters: int, shape: tuple[int, ...]) -> tuple[Array, QuantizedType]:
        if self.storage == "int8":
            scales = tuple(float32(scale) for scale in self.rng.uniform(0.002, 0.02, filters))
            return self.rng.integers(-127, 128, shape).astype(np.int8), QuantizedType("int8", scales, axis=0)
        zero_point = int(self.rng.integers(90, 170))
        return self.rng.integers(0, 256, shape).astype(np.uint8), QuantizedType(
            "uint8", (float32(0.01),), (zero_point,)
        )

    def conv(
        self,
        x: Tensor,
        filters: int,
        kernel: tuple[int, int],
        stride: int = 1,
        *,
        depthwise: bool = False,
        groups: int = 1,
    ) -> Tensor:
        channels = x.shape[3]
        filters = channels if depthwise else filters
        groups = channels if depthwise else groups
        weight, weight_type = self.weights(filters, (filters, *kernel, channels // groups))
        bias = self.rng.integers(-3000, 3000, filters).astype(np.int32)
        padding = (kernel[0] // 2, kernel[1] // 2, (kernel[0] - 1) // 2, (kernel[1] - 1) // 2)
        total = self.emit(
            ops.conv2d(
                x.var, relax.const(weight), relax.const(bias), x.type, weight_type,
                strides=(stride, stride), padding=padding, groups=groups,
            )
        )  # fmt: skip
        out_type = self.type()
        result = self.emit(ops.requantize(total, accumulator_type(x.type, weight_type, axis=3), out_type))
        return Tensor(result, tuple(int(dim) for dim in result.ty.shape), out_type)

    def dense(self, x: Tensor, filters: int) -> Tensor:
        weight, weight_type = self.weights(filters, (filters, x.shape[1]))
        total = self.emit(ops.dense(x.var, relax.const(weight), None, x.type, weight_type))
        out_type = self.type()
        result = self.emit(ops.requantize(total, accumulator_type(x.type, weight_type, axis=1), out_type))
        return Tensor(result, (x.shape[0], filters), out_type)

    def add(self, lhs: Tensor, rhs: Tensor) -> Tensor:
        out_type = self.type()
        return Tensor(self.emit(ops.add(lhs.var, rhs.var, lhs.type, rhs.type, out_type)), lhs.shape, out_type)

    def activated(self, x: Tensor, function: str, **attrs: float) -> Tensor:
        out_type = self.type()
        return Tensor(self.emit(ops.unary(function, x.var, x.type, out_type, **attrs)), x.shape, out_type)

    def pad(self, x: Tensor, value: int) -> Tensor:
        padded = self.emit(relax.op.nn.pad(x.var, [0, 0, 1, 2, 0, 1, 0, 0], pad_value=value))
        return Tensor(padded, tuple(int(dim) for dim in padded.ty.shape), x.type)

    def max_pool(self, x: Tensor, padding: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Tensor:
        pooled = self.emit(ops.max_pool2d(x.var, x.type, x.type, pool_size=(3, 3), strides=(2, 2), padding=padding))
        return Tensor(pooled, tuple(int(dim) for dim in pooled.ty.shape), x.type)

    def average(self, x: Tensor) -> Tensor:
        pooled = self.emit(ops.avg_pool2d(x.var, x.type, x.type, pool_size=x.shape[1:3], strides=(1, 1)))
        return Tensor(pooled, (x.shape[0], 1, 1, x.shape[3]), x.type)

    def mean(self, x: Tensor) -> Tensor:
        out_type = self.type()
        result = self.emit(ops.mean(x.var, x.type, out_type, axes=[1, 2], keepdims=bool(self.rng.integers(2))))
        return Tensor(result, tuple(int(dim) for dim in result.ty.shape), out_type)

    def flat(self, x: Tensor) -> Tensor:
        """Returns images of one pixel as the rows of a matrix."""
        shape = (x.shape[0], x.shape[-1])
        return Tensor(self.emit(relax.op.reshape(x.var, shape)), shape, x.type)

    def concatenate(self, parts: list[Tensor]) -> Tensor:
        out_type = self.type()
        types = [part.type for part in parts]
        joined = self.emit(ops.concatenate([part.var for part in parts], types, out_type, axis=3))
        return Tensor(joined, tuple(int(dim) for dim in joined.ty.shape), out_type)


def residual_network(net: Network, x: Tensor) -> Tensor:
    """Emits a stem, an inverted bottleneck with a residual, a strided block, a pool and a classifier."""
    rng = net.rng
    width = int(rng.choice([8, 16, 24, 40]))
    y = net.conv(x, width, (3, 3), 2)
    z = net.conv(y, width * 2, (1, 1))
    z = net.conv(z, 0, (3, 3), depthwise=True)
    z = net.conv(z, width, (1, 1))
    y = net.add(*((y, z) if rng.integers(2) else (z, y)))
    if rng.integers(2):
        y = net.pad(y, y.type.zero_point if rng.integers(2) else 3)
    y = net.conv(y, 33, (3, 1), 2)
    pooled = net.mean(y) if rng.integers(2) else net.average(y)
    return net.dense(net.flat(pooled), 10)


def branching_network(net: Network, x: Tensor) -> Tensor:
    """Emits branches with kernels of different sizes, which are concatenated as in Inception."""
    y = net.max_pool(net.conv(x, 16, (3, 3)), padding=(1, 1, 1, 1))
    parts = [net.conv(y, 16, (1, 1)), net.conv(net.conv(y, 24, (1, 1)), 32, (1, 7)), net.conv(y, 20, (5, 5))]
    z = net.concatenate(parts)
    return net.add(net.conv(z, 24, (1, 1)), net.conv(z, 24, (3, 3)))


def grouped_network(net: Network, x: Tensor) -> Tensor:
    """Emits bottlenecks of ResNeXt, separate activations, two filters for each channel, and a 1x1 classifier."""
    groups = int(net.rng.choice([2, 3, 8]))
    width = groups * int(net.rng.choice([1, 4, 5, 16]))
    y = net.activated(net.conv(x, width, (1, 1)), str(net.rng.choice(["hard_swish", "logistic", "relu"])))
    y = net.add(y, net.activated(net.conv(y, width, (3, 3), groups=groups), "leaky_relu", alpha=0.2))
    y = net.conv(y, 2 * width, (3, 3), 2, groups=width)
    return net.conv(net.average(y), 19, (1, 1))


def constant_network(net: Network, x: Tensor) -> Tensor:
    """Emits sums and products with constants as either operand, and a concatenation with a constant.

    The constants have one value, or one for each channel, pixel or element.
    """
    rng, (low, high) = net.rng, STORAGE_RANGES[net.storage]
    y = net.conv(x, 20, (3, 3))
    for shape in [(), (20,), (1, 1, 1, 20), (1, *y.shape[1:3], 1), y.shape]:
        constant = rng.integers(low, high, shape if rng.integers(3) else (), endpoint=True).astype(net.storage)
        constant = np.broadcast_to(constant, shape)
        other, out_type = net.type(), net.type()
        operands = [(y.var, y.type), (relax.const(constant), other)]
        (lhs, lhs_type), (rhs, rhs_type) = operands if rng.integers(2) else operands[::-1]
        operator = ops.add if rng.integers(2) else ops.mul
        y = Tensor(net.emit(operator(lhs, rhs, lhs_type, rhs_type, out_type)), y.shape, out_type)
    beside = rng.integers(low, high, (*y.shape[:3], 16), endpoint=True).astype(net.storage)
    return net.conv(net.concatenate([Tensor(relax.const(beside), beside.shape, net.type()), y]), 8, (3, 3))


def bottleneck_network(net: Network, x: Tensor) -> Tensor:
    """Emits blocks of the first ResNet. Its 1x1 convolutions have strides, so they skip pixels."""
    y = net.conv(x, 20, (1, 1))
    y = net.add(y, net.conv(net.conv(net.conv(y, 12, (1, 1)), 12, (3, 3)), 20, (1, 1)))
    z = net.conv(net.conv(net.conv(y, 12, (1, 1), 2), 12, (3, 3)), 24, (1, 1))
    return net.average(net.add(net.conv(y, 24, (1, 1), 2), z))


def joined_network(net: Network, x: Tensor) -> Tensor:
    """Emits a dense block: every layer reads all earlier outputs, so concatenations are parts of concatenations.

    Parts begin at the start of a block or inside one. Some parts are also read by layers that need other halos, are
    pooled, occur twice, or have another type than the result.
    """
    rng = net.rng
    net.shared = net.type()
    y = net.max_pool(net.conv(x, 16, (3, 3)), padding=(1, 1, 1, 1))
    for width in rng.choice([8, 16, 20, 32], 3).tolist():
        y = net.concatenate([y, net.conv(net.conv(y, 12, (1, 1)), width, (3, 3))])
    other, net.shared = net.shared, None
    parts = [net.conv(y, 16, (1, 1)), y]
    net.shared = other
    parts += [net.conv(y, 0, (3, 3), depthwise=True), net.add(y, y), parts[int(rng.integers(2))]]
    y = net.concatenate([parts[position] for position in rng.permutation(len(parts))])
    return net.conv(y, 19, (1, 1))
