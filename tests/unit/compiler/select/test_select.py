"""A model computes the same bits as the oracle, whichever kernels are selected for its operators."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.portable import PortableIsa
from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType, accumulator_type
from service.core.builds.numerics import FBGEMM, ONEDNN, ONNXRUNTIME, TORCH_X86
from service.core.models.arrays import Array
from service.core.target import TARGETS
from tests.support.qnn_models import SIGNED_MODES, Emit, float32, module_of
from tests.support.selected import RUNNING, run_selected, selected

HERE = RUNNING
NETWORKS = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def in_turns(*modes: str) -> list[tuple[Any, str]]:
    """Returns each target with one of the modes, in turn. The kernels' own tests cover all pairs."""
    return list(zip(HERE, itertools.cycle(modes), strict=False))


def on_vectors(family: str) -> str:
    """Returns `family`, or `conv` instead of `matrix`: targets without tile instructions use `conv`."""
    return "conv" if family == "matrix" else family


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


def holds(net_of: Callable[[Network, Tensor], Tensor], target: Any, seed: int, scratch: Path, **how: Any) -> None:
    """Checks that a network computes the same as the oracle.

    Args:
        how: `mode`, `storage` and `batch`; also `library_of`, if the kernels are not those of the target.
    """
    rng, mode, storage = np.random.default_rng(seed), how["mode"], how["storage"]
    shape = (how["batch"], int(rng.integers(9, 15)), int(rng.integers(9, 15)), int(rng.choice([1, 3, 16, 20])))
    low = -128 if storage == "int8" else 0

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, storage)
        return net_of(net, Tensor(inputs[0], shape, net.type())).var

    module = module_of([(shape, storage)], body)
    x = rng.integers(low, low + 256, shape).astype(storage)
    assume(defines(get_mode(mode), module))
    expected = oracle.run(module, get_mode(mode), [x])
    selection, outputs = run_selected(module, target, mode, [x], scratch, how.get("library_of"))
    assert selection.layers
    np.testing.assert_array_equal(outputs[0], expected[0])


def defines(mode: Mode, module: tvm.IRModule) -> bool:
    """Returns true if `mode` has a formula for each operator of `module`."""
    found = graph.operations(graph.main_of(module))
    return all(operation is None or mode.key(operation) in mode.formulas for _, _, operation in found)


HOW = (st.integers(0, 2**32), st.sampled_from(SIGNED_MODES), st.sampled_from(["int8", "uint8"]), st.integers(1, 2))
NETS = {
    "residual": residual_network,
    "branching": branching_network,
    "grouped": grouped_network,
    "joined": joined_network,
    "bottleneck": bottleneck_network,
    "constant": constant_network,
}


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("name", ["residual", "branching", "grouped"])
@NETWORKS
@given(*HOW)
def test_a_network_of_kernels_equals_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, target: Any, name: str, seed: int, mode: str, storage: str, batch: int
) -> None:
    scratch = tmp_path_factory.mktemp("build")
    holds(NETS[name], target, seed, scratch, mode=mode, storage=storage, batch=batch)


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("name", ["joined", "bottleneck", "constant"])
@NETWORKS
@given(*HOW, st.sampled_from(HERE or [TARGETS[0]]))
def test_joined_strided_and_constant_networks_equal_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, mode: str, storage: str, batch: int, target: Any
) -> None:
    scratch = tmp_path_factory.mktemp("build")
    holds(NETS[name], target, seed, scratch, mode=mode, storage=storage, batch=batch)


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("name", ["residual", "branching", "grouped"])
@settings(NETWORKS, max_examples=1)
@given(st.integers(0, 2**32))
def test_the_families_run_on_the_portable_instruction_set(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int
) -> None:
    how = {"mode": "xnnpack", "storage": "int8", "batch": 1, "library_of": portable_library}
    holds(NETS[name], HERE[0], seed, tmp_path_factory.mktemp("build"), **how)


def portable_library(mode: Mode) -> SimdLibrary:
    return SimdLibrary(PortableIsa(), mode)


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_tensors_between_kernels_are_never_reordered(target: Any) -> None:
    rng = np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        return residual_network(net, Tensor(inputs[0], (1, 16, 16, 3), net.type())).var

    report = selected(module_of([((1, 16, 16, 3), "int8")], body), target, "xnnpack").report()
    assert report["reorders"] == 2
    assert [layer["kernel"] for layer in report["layers"]].count("conv") >= 4


@pytest.mark.parametrize("target", HERE[:1], ids=str)
@pytest.mark.parametrize("keepdims", [True, False])
def test_the_classifier_of_a_batch_reads_means_where_they_are_written(target: Any, keepdims: bool) -> None:
    kind = QuantizedType("int8", (0.1,), (0,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, np.random.default_rng(1), "int8")
        x = net.conv(Tensor(inputs[0], (3, 8, 8, 3), kind), 20, (3, 3))
        means = emit(ops.mean(x.var, x.type, kind, axes=[1, 2], keepdims=keepdims))
        flat = emit(relax.op.reshape(means, [3, 20])) if keepdims else means
        return net.dense(Tensor(flat, (3, 20), kind), 10).var

    report = selected(module_of([((3, 8, 8, 3), "int8")], body), target, "xnnpack").report()
    assert [layer["kernel"] for layer in report["layers"]] == ["pack", "conv", "mean", "conv", "unpack"]
    assert report["plain"] == []


@pytest.mark.parametrize(("target", "mode"), in_turns("onnxruntime", "litert-reference"), ids=str)
def test_sums_and_real_values_come_from_kernels(target: Any, mode: str, tmp_path: Path) -> None:
    """The outputs are the accumulators of convolutions, computed by each of the three kernels, and of a dense layer.

    Accumulators with two readers are written once.
    """
    rng = np.random.default_rng(1)
    kind = QuantizedType("int8", (0.1,), (3,))

    def layer(net: Network, x: relax.Var, groups: int, filters: int) -> tuple[relax.Var, QuantizedType]:
        weight, weight_type = net.weights(filters, (filters, 3, 3, 20 // groups))
        window = {"padding": (1, 1, 1, 1), "groups": groups}
        sums = net.emit(ops.conv2d(x, relax.const(weight), None, kind, weight_type, **window))  # type: ignore[arg-type]
        return sums, accumulator_type(kind, weight_type, axis=3)

    def body(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        net = Network(emit, rng, "int8")
        reals = [ops.dequantize(*layer(net, inputs[0], groups, 20)) for groups in (1, 4, 20)]
        twice = layer(net, inputs[0], 1, 33)
        flat = emit(ops.mean(inputs[0], kind, kind, axes=[1, 2], keepdims=False))
        weight, weight_type = net.weights(1001, (1001, 20))
        bias = relax.const(np.full(1001, 2**31 - 9, np.int32))  # some sums wrap, and some have more bits than float32
        logits = emit(ops.dense(flat, relax.const(weight), bias, kind, weight_type))
        ends = [ops.dequantize(logits, accumulator_type(kind, weight_type, axis=1)), ops.dequantize(*twice)]
        return [twice[0], *(emit(end) for end in (*reals, *ends))]

    module = module_of([((2, 6, 7, 20), "int8")], body)
    x = rng.integers(-128, 128, (2, 6, 7, 20)).astype(np.int8)
    selection, outputs = run_selected(module, target, mode, [x], tmp_path)
    for actual, expected in zip(outputs, oracle.run(module, get_mode(mode), [x]), strict=True):
        np.testing.assert_array_equal(actual, expected)
    report = selection.report()
    families = Counter(on_vectors(layer["kernel"]) for layer in report["layers"])
    assert families == {"conv": 3, "depthwise": 1, "pack": 1, "grouped": 1, "mean": 1}
    assert [operator["operators"] for operator in report["plain"]] == ["dequantize"]


@pytest.mark.parametrize(("target", "mode"), in_turns(FBGEMM, ONEDNN, TORCH_X86, ONNXRUNTIME), ids=str)
def test_layers_with_biases_of_real_values_have_kernels(target: Any, mode: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    kind = QuantizedType("uint8", (0.1,), (3,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = inputs[0]
        for groups, filters in ((1, 24), (24, 24), (3, 33)):
            channels = int(x.ty.shape[3])
            weight = rng.integers(-127, 128, (filters, 3, 3, channels // groups)).astype(np.int8)
            weight_type = QuantizedType("int8", tuple(map(float32, rng.uniform(0.002, 0.02, filters))), axis=0)
            sums = emit(ops.conv2d(x, relax.const(weight), None, kind, weight_type, groups=groups))
            bias = relax.const(rng.normal(0, 3, filters).astype(np.float32))
            x = emit(ops.requantize(sums, accumulator_type(kind, weight_type, axis=3), kind, bias))
        return x

    module = module_of([((1, 9, 8, 3), "uint8")], body)
    x = rng.integers(0, 256, (1, 9, 8, 3)).astype(np.uint8)
    selection, (actual,) = run_selected(module, target, mode, [x], tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(mode), [x])[0])
    assert [layer["kernel"] for layer in selection.layers] == ["pack", "conv", "depthwise", "grouped", "unpack"]
    assert selection.plain == []


@pytest.mark.parametrize(("target", "mode"), in_turns(FBGEMM, "onnxruntime"), ids=str)
def test_real_values_are_converted_on_the_way_in_and_out(target: Any, mode: str, tmp_path: Path) -> None:
    rng, kind = np.random.default_rng(3), QuantizedType("uint8", (0.1,), (7,))

    def body(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        net = Network(emit, rng, "uint8")
        stem = net.conv(Tensor(emit(ops.quantize(inputs[0], kind)), (1, 9, 8, 3), kind), 20, (3, 3))
        again = emit(ops.quantize(inputs[1], stem.type))
        stem = net.add(stem, Tensor(again, stem.shape, stem.type))
        return [emit(ops.dequantize(stem.var, stem.type)), again]

    module = module_of([((1, 9, 8, 3), "float32"), ((1, 9, 8, 20), "float32")], body)
    inputs = [rng.normal(0, 9, (1, 9, 8, channels)).astype(np.float32) for channels in (3, 20)]
    selection, outputs = run_selected(module, target, mode, inputs, tmp_path)
    for actual, expected in zip(outputs, oracle.run(module, get_mode(mode), inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)
    kinds = [(layer["operators"], layer["kernel"]) for layer in selection.layers]
    ends = [("dequantize", "unpack"), ("unpack", "unpack")]
    assert kinds == [("quantize", "pack"), ("quantize", "pack"), ("conv2d+requantize+add", "conv"), *ends]
    assert selection.plain == []


@pytest.mark.parametrize(("target", "mode"), in_turns(FBGEMM, "onnxruntime"), ids=str)
@pytest.mark.parametrize("quantized_first", [True, False])
def test_conversions_also_transpose_channels(target: Any, mode: str, quantized_first: bool, tmp_path: Path) -> None:
    """Inputs and outputs are `[N, C, H, W]`, as float32 or bytes, as in models from ONNX and PyTorch."""
    rng, kind = np.random.default_rng(3), QuantizedType("uint8", (0.1,), (7,))

    def body(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        net = Network(emit, rng, "uint8")
        if quantized_first:
            x = emit(relax.op.permute_dims(emit(ops.quantize(inputs[0], kind)), (0, 2, 3, 1)))
        else:
            x = emit(ops.quantize(emit(relax.op.permute_dims(inputs[0], (0, 2, 3, 1))), kind))
        y = net.conv(Tensor(x, (1, 9, 8, 3), kind), 20, (3, 3))
        other = emit(relax.op.permute_dims(inputs[1], (0, 2, 3, 1)))
        z = net.add(y, net.conv(Tensor(other, y.shape, kind), 20, (1, 1)))
        real = emit(relax.op.permute_dims(emit(ops.dequantize(z.var, z.type)), (0, 3, 1, 2)))
        return [real, emit(relax.op.permute_dims(z.var, (0, 3, 1, 2)))]

    module = module_of([((1, 3, 9, 8), "float32"), ((1, 20, 9, 8), "uint8")], body)
    inputs: list[Array] = [
        rng.normal(0, 9, (1, 3, 9, 8)).astype(np.float32),
        rng.integers(0, 256, (1, 20, 9, 8)).astype(np.uint8),
    ]
    selection, outputs = run_selected(module, target, mode, inputs, tmp_path)
    for actual, expected in zip(outputs, oracle.run(module, get_mode(mode), inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)
    kinds = [(layer["operators"], layer["kernel"]) for layer in selection.layers]
    assert kinds == [
        ("permute+quantize", "pack"),
        ("conv2d+requantize", "conv"),
        ("permute+pack", "pack"),
        ("conv2d+requantize+add", "conv"),
        ("dequantize", "unpack"),
        ("unpack+permute", "unpack"),
    ]
    assert selection.plain == []


@pytest.mark.parametrize(("target", "mode"), in_turns("litert-reference", "xnnpack"), ids=str)
def test_images_are_resized_between_kernels(target: Any, mode: str, tmp_path: Path) -> None:
    """Concatenates branches of several sizes, as segmentation models do."""
    rng, kind = np.random.default_rng(4), QuantizedType("uint8", (0.1,), (7,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "uint8")
        net.shared = kind
        x = net.conv(Tensor(inputs[0], (1, 9, 8, 3), kind), 16, (3, 3))
        small = net.conv(x, 24, (3, 3), 2)
        how = {"size": (9, 8), "align_corners": False, "half_pixel_centers": True}
        large = emit(ops.resize_bilinear(small.var, kind, kind, **how))  # type: ignore[arg-type]
        return net.conv(net.concatenate([x, Tensor(large, (1, 9, 8, 24), kind)]), 5, (3, 3)).var

    module = module_of([((1, 9, 8, 3), "uint8")], body)
    x = rng.integers(0, 256, (1, 9, 8, 3)).astype(np.uint8)
    selection, (actual,) = run_selected(module, target, mode, [x], tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(mode), [x])[0])
    assert [on_vectors(layer["kernel"]) for layer in selection.layers] == [
        "pack",
        "conv",
        "conv",
        "resize",
        "conv",
        "unpack",
    ]
    assert selection.plain == []


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_functions_of_one_value_are_tables_between_kernels(target: Any) -> None:
    rng = np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        y = net.conv(Tensor(inputs[0], (1, 8, 8, 3), net.type()), 16, (3, 3))
        return net.conv(net.activated(y, "hard_swish"), 16, (3, 3)).var

    report = selected(module_of([((1, 8, 8, 3), "int8")], body), target, "xnnpack").report()
    assert [layer["kernel"] for layer in report["layers"]] == ["pack", "conv", "table", "conv", "unpack"]


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_a_constant_for_each_channel_is_an_operand_and_one_for_all_makes_a_table(target: Any) -> None:
    kind = QuantizedType("int8", (0.1,), (0,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        y = Network(emit, np.random.default_rng(1), "int8").conv(Tensor(inputs[0], (1, 8, 8, 3), kind), 16, (3, 3))
        y = emit(ops.mul(y.var, relax.const(np.arange(16, dtype=np.int8)), y.type, kind, kind))
        return emit(ops.add(relax.const(np.full((1, 16), 3, np.int8)), y, kind, kind, kind))

    report = selected(module_of([((1, 8, 8, 3), "int8")], body), target, "xnnpack").report()
    assert [layer["kernel"] for layer in report["layers"]] == ["pack", "conv", "mul", "table", "unpack"]
    assert report["plain"] == []


@pytest.mark.parametrize("target", HERE[:1], ids=str)
@pytest.mark.parametrize("operator", [ops.sub, ops.prelu, ops.squared_difference])
def test_arithmetic_has_a_table_for_one_constant_and_a_kernel_for_many(
    target: Any, operator: Callable[..., relax.Call], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, rng = QuantizedType("int8", (0.1,), (3,)), np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        net.shared = kind
        x = net.conv(Tensor(inputs[0], (1, 8, 8, 3), kind), 16, (3, 3))
        y = emit(operator(x.var, relax.const(np.full((1, 1, 16), -70, np.int8)), kind, kind, kind))
        y = emit(operator(y, relax.const(np.arange(16, dtype=np.int8)), kind, kind, kind))
        return net.conv(Tensor(y, x.shape, kind), 16, (1, 1)).var

    module = module_of([((1, 8, 8, 3), "int8")], body)
    x = rng.integers(-128, 128, (1, 8, 8, 3)).astype(np.int8)
    selection, outputs = run_selected(module, target, "litert-reference", [x], tmp_path_factory.mktemp("build"))
    np.testing.assert_array_equal(outputs[0], oracle.run(module, get_mode("litert-reference"), [x])[0])
    kernels = [layer["kernel"] for layer in selection.layers]
    assert kernels == ["pack", "conv", "table", operator.__name__, "conv", "unpack"]
    assert selection.plain == []


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_parts_of_the_same_type_are_written_in_place(target: Any) -> None:
    """Three of four parts begin at a block, and only the fourth is copied. If all parts do, nothing is copied."""
    rng = np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        net.shared = net.type()
        x = net.conv(Tensor(inputs[0], (1, 16, 16, 3), net.shared), 16, (3, 3))
        joined = net.concatenate([net.conv(x, filters, (3, 3)) for filters in (16, 32, 18, 16)])
        return net.concatenate([net.conv(joined, 16, (1, 1)), net.conv(joined, 24, (3, 3))]).var

    report = selected(module_of([((1, 16, 16, 3), "int8")], body), target, "xnnpack").report()
    assert [(each["parts"], each["in_place"]) for each in report["concatenations"]] == [(4, 3), (2, 2)]
    (copied,) = (layer for layer in report["layers"] if layer["kernel"] == "concat")
    assert copied["in_place"] == 3


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_padding_with_another_value_equals_the_oracle(target: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        net.shared = QuantizedType("int8", (0.5,), (-4,))
        x = net.conv(Tensor(inputs[0], (1, 9, 9, 16), net.shared), 16, (1, 1))
        return net.conv(net.pad(x, 100), 16, (1, 1)).var

    module = module_of([((1, 9, 9, 16), "int8")], body)
    x = rng.integers(-128, 128, (1, 9, 9, 16)).astype("int8")
    _, outputs = run_selected(module, target, "xnnpack", [x], tmp_path_factory.mktemp("build"))
    np.testing.assert_array_equal(outputs[0], oracle.run(module, get_mode("xnnpack"), [x])[0])


def test_a_declined_operator_is_reported_with_the_reason() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        kind = QuantizedType("int8", (0.1,), (0,))
        return emit(ops.l2_normalize(inputs[0], kind, QuantizedType("int8", (1 / 128,), (0,))))

    selection = selected(module_of([((1, 10), "int8")], body), TARGETS[0], "xnnpack")
    assert not selection.kernels
    assert list(selection.declined.values()) == ["l2_normalize: no kernel computes this operator"]
