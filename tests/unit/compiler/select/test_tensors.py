"""Tests the layouts of the tensors between kernels, and the conversions from and to plain tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import FBGEMM
from service.core.models.arrays import Array
from tests.support.kernel_networks import (
    Network,
    Tensor,
    residual_network,
)
from tests.support.qnn_models import Emit, module_of
from tests.support.selected import RUNNING, in_turns, run_selected, selected


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
def test_tensors_between_kernels_are_never_reordered(target: Any) -> None:
    rng = np.random.default_rng(1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        net = Network(emit, rng, "int8")
        return residual_network(net, Tensor(inputs[0], (1, 16, 16, 3), net.type())).var

    report = selected(module_of([((1, 16, 16, 3), "int8")], body), target, "xnnpack").report()
    assert report["reorders"] == 2
    assert [layer["kernel"] for layer in report["layers"]].count("conv") >= 4


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
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


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
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


@pytest.mark.parametrize("target", RUNNING[:1], ids=str)
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
