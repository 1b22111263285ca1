"""A model computes the same bits as the oracle, whichever kernels are selected for its operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import FBGEMM, ONEDNN, ONNXRUNTIME, TORCH_X86
from service.core.target import TARGETS
from tests.support.examples import examples
from tests.support.kernel_networks import (
    Network,
    Tensor,
    bottleneck_network,
    branching_network,
    constant_network,
    grouped_network,
    joined_network,
    residual_network,
)
from tests.support.qnn_models import SIGNED_MODES, Emit, float32, module_of
from tests.support.selected import RUNNING, in_turns, run_selected, selected

NETWORKS = settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def on_vectors(family: str) -> str:
    """Returns `family`, or `conv` instead of `matrix`: targets without tile instructions use `conv`."""
    return "conv" if family == "matrix" else family


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


@pytest.mark.parametrize("target", RUNNING, ids=str)
@pytest.mark.parametrize("name", ["residual", "branching", "grouped"])
@NETWORKS
@given(*HOW)
def test_a_network_of_kernels_equals_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, target: Any, name: str, seed: int, mode: str, storage: str, batch: int
) -> None:
    scratch = tmp_path_factory.mktemp("build")
    holds(NETS[name], target, seed, scratch, mode=mode, storage=storage, batch=batch)


@pytest.mark.skipif(not RUNNING, reason="no x86-64 target runs here")
@pytest.mark.parametrize("name", ["joined", "bottleneck", pytest.param("constant", marks=pytest.mark.slow)])
@NETWORKS
@given(*HOW, st.sampled_from(RUNNING or [TARGETS[0]]))
def test_joined_strided_and_constant_networks_equal_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, mode: str, storage: str, batch: int, target: Any
) -> None:
    scratch = tmp_path_factory.mktemp("build")
    holds(NETS[name], target, seed, scratch, mode=mode, storage=storage, batch=batch)


@pytest.mark.skipif(not RUNNING, reason="no x86-64 target runs here")
@pytest.mark.parametrize(
    "name", ["branching", *(pytest.param(name, marks=pytest.mark.slow) for name in ("residual", "grouped"))]
)
@settings(NETWORKS, max_examples=1)
@given(st.integers(0, 2**32))
def test_the_families_run_on_the_portable_instruction_set(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int
) -> None:
    how = {"mode": "xnnpack", "storage": "int8", "batch": 1, "library_of": portable_library}
    holds(NETS[name], RUNNING[0], seed, tmp_path_factory.mktemp("build"), **how)


def portable_library(mode: Mode) -> SimdLibrary:
    return SimdLibrary(PortableIsa(), mode)


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


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
def test_functions_of_one_value_are_tables_between_kernels(target: Any) -> None:
    rng = np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        y = net.conv(Tensor(inputs[0], (1, 8, 8, 3), net.type()), 16, (3, 3))
        return net.conv(net.activated(y, "hard_swish"), 16, (3, 3)).var

    report = selected(module_of([((1, 8, 8, 3), "int8")], body), target, "xnnpack").report()
    assert [layer["kernel"] for layer in report["layers"]] == ["pack", "conv", "table", "conv", "unpack"]


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
def test_a_constant_for_each_channel_is_an_operand_and_one_for_all_makes_a_table(target: Any) -> None:
    kind = QuantizedType("int8", (0.1,), (0,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        y = Network(emit, np.random.default_rng(1), "int8").conv(Tensor(inputs[0], (1, 8, 8, 3), kind), 16, (3, 3))
        y = emit(ops.mul(y.var, relax.const(np.arange(16, dtype=np.int8)), y.type, kind, kind))
        return emit(ops.add(relax.const(np.full((1, 16), 3, np.int8)), y, kind, kind, kind))

    report = selected(module_of([((1, 8, 8, 3), "int8")], body), target, "xnnpack").report()
    assert [layer["kernel"] for layer in report["layers"]] == ["pack", "conv", "mul", "table", "unpack"]
    assert report["plain"] == []


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
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


def test_a_declined_operator_is_reported_with_the_reason() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        kind = QuantizedType("int8", (0.1,), (0,))
        return emit(ops.l2_normalize(inputs[0], kind, QuantizedType("int8", (1 / 128,), (0,))))

    selection = selected(module_of([((1, 10), "int8")], body), TARGETS[0], "xnnpack")
    assert not selection.kernels
    assert list(selection.declined.values()) == ["l2_normalize: no kernel computes this operator"]
