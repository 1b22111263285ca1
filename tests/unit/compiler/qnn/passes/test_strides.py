"""Strides move to the earliest layer that allows them, and no pixel of the outputs changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.qnn import coverage, graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes import simplify
from service.compiler.qnn.passes.strides import move_strides
from service.compiler.qnn.types import QuantizedType, accumulator_type
from tests.support.examples import examples
from tests.support.qnn_models import SIGNED_MODES, Emit, module_of
from tests.support.qnn_text import check_pass

KIND, WEIGHT, OTHER = (QuantizedType("int8", (scale,), (zero,)) for scale, zero in ((0.5, 3), (0.25, 0), (0.75, -5)))
MODE = get_mode("xnnpack")


class Layers:
    """Emits layers with random weights."""

    def __init__(self, emit: Emit, seed: int = 0) -> None:
        self.emit, self.rng = emit, np.random.default_rng(seed)

    def conv(self, x: relax.Var, filters: int, kernel: int, stride: int = 1, padding: int = 0) -> relax.Var:
        channels = int(x.ty.shape[3])
        weight = self.rng.integers(-9, 10, (filters, kernel, kernel, channels)).astype(np.int8)
        sums = self.emit(
            ops.conv2d(x, relax.const(weight), None, KIND, WEIGHT, strides=(stride,) * 2, padding=(padding,) * 4)
        )
        return self.emit(ops.requantize(sums, accumulator_type(KIND, WEIGHT, axis=3), OTHER))

    def block(self, x: relax.Var, stride: int) -> relax.Var:
        """Adds a bottleneck block of the original ResNet. Its stride is in the 1x1 convolutions."""
        y = self.conv(self.conv(self.conv(x, 4, 1, stride), 4, 3, 1, 1), 8, 1)
        short = self.conv(x, 8, 1, stride) if stride > 1 or int(x.ty.shape[3]) != 8 else x
        return self.emit(ops.add(y, short, OTHER, OTHER, KIND))


def windows(module: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the names and strides of the operators that have windows."""
    operations = [found for _, _, found in graph.operations(graph.main_of(module)) if found is not None]
    return [
        (found.name.removeprefix("qnn."), found.ints("strides", 2, 1))
        for found in operations
        if found.name in ("qnn.conv2d", "qnn.max_pool2d", "qnn.avg_pool2d")
    ]


def image(module: Any, seed: int = 0) -> np.ndarray:
    (x,) = graph.main_of(module).params
    return np.random.default_rng(seed).integers(-128, 128, graph.shape_of(x)).astype(np.int8)


def same(module: Any, moved: Any, mode: str = "xnnpack") -> None:
    x = image(module)
    expected, got = (oracle.run(each, get_mode(mode), [x])[0] for each in (module, moved))
    np.testing.assert_array_equal(got, expected)


def test_the_last_block_of_a_stage_computes_a_quarter() -> None:
    """Intel 2018, figure 9: both readers of the sum skip pixels. So the sum, and the 1x1 and 3x3 convolutions before
    it, skip the same pixels, and the sum's other operand is subsampled.
    """

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        layers = Layers(emit)
        return layers.block(layers.block(inputs[0], 1), 2)

    module = module_of([((2, 9, 12, 8), "int8")], body)
    moved, names = move_strides(module, MODE)
    assert windows(moved) == [
        ("conv2d", (1, 1)), ("conv2d", (2, 2)), ("conv2d", (1, 1)), ("max_pool2d", (2, 2)),
        ("conv2d", (1, 1)), ("conv2d", (1, 1)), ("conv2d", (1, 1)), ("conv2d", (1, 1)),
    ]  # fmt: skip
    assert len(names) == 2
    assert coverage.report(moved)["macs"] < coverage.report(module)["macs"]
    same(module, moved)


def test_an_image_that_another_reader_needs_is_computed_completely() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        layers = Layers(emit)
        x = layers.conv(inputs[0], 8, 3)
        halves = layers.conv(x, 8, 1, 2)
        means = emit(ops.mean(x, OTHER, OTHER, axes=[1, 2], keepdims=True))
        return emit(ops.add(halves, means, OTHER, OTHER, KIND))

    module = module_of([((1, 9, 9, 8), "int8")], body)
    moved, names = move_strides(module, MODE)
    assert not names
    assert moved is module


def test_a_pooling_that_only_skips_pixels_is_removed() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = Layers(emit).conv(inputs[0], 8, 3)
        return emit(ops.max_pool2d(x, OTHER, OTHER, pool_size=(1, 1), strides=(2, 3)))

    module = module_of([((1, 9, 9, 8), "int8")], body)
    moved, _ = move_strides(module, MODE)
    assert windows(moved) == [("conv2d", (2, 3))]
    same(module, moved)


def test_constants_and_parts_are_subsampled_with_their_operands() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        layers = Layers(emit)
        x = layers.conv(inputs[0], 8, 3)
        row = relax.const(np.arange(7 * 7, dtype=np.int8).reshape(1, 7, 7, 1))
        x = emit(ops.mul(emit(ops.add(x, row, OTHER, KIND, OTHER)), relax.const(np.int8(5)), OTHER, KIND, KIND))
        return layers.conv(emit(ops.concatenate([x, x], [KIND, KIND], KIND, axis=3)), 8, 1, 2)

    module = module_of([((1, 9, 9, 8), "int8")], body)
    moved, names = move_strides(module, MODE)
    assert windows(moved) == [("conv2d", (2, 2)), ("conv2d", (1, 1))]
    assert names
    same(module, moved)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(SIGNED_MODES))
def test_any_graph_of_windows_and_sums_keeps_its_values(data: st.DataObject, mode: str) -> None:
    """Layers read any earlier image of a suitable size. Strides and readers are random."""
    draw = data.draw

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        layers, images = Layers(emit, draw(st.integers(0, 99))), [inputs[0]]
        kinds = [kind for kind in ("add", "relu") if kind in get_mode(mode).formulas]
        for _ in range(draw(st.integers(2, 8))):
            x = draw(st.sampled_from(images[-3:]))
            partners = [y for y in images if graph.shape_of(y) == graph.shape_of(x)]
            kernel, stride = draw(st.sampled_from([(1, 1), (1, 2), (1, 3), (3, 1), (3, 2)]))
            match draw(st.sampled_from(["conv", "conv", "conv", "pool", "concatenate", *kinds])):
                case "conv":
                    images.append(layers.conv(x, 4, kernel, stride, kernel // 2))
                case "pool":
                    padding = (kernel // 2,) * 4
                    how = {"pool_size": (kernel,) * 2, "strides": (stride, 1), "padding": padding}
                    pool = draw(st.sampled_from([ops.max_pool2d, ops.avg_pool2d]))
                    images.append(emit(pool(x, KIND, KIND, **how)))
                case "add":
                    images.append(emit(ops.add(x, draw(st.sampled_from(partners)), KIND, OTHER, KIND)))
                case "relu":
                    clamped = QuantizedType("int8", (0.5,), (3,), storage_min=3, storage_max=90)
                    images.append(emit(ops.unary("relu", x, KIND, clamped)))
                case _:
                    joined = emit(ops.concatenate([x, x], [KIND, OTHER], KIND, axis=3))
                    images.append(layers.conv(joined, 4, 1, stride))
        return images[-1]

    module = module_of([((1, 11, 10, 4), "int8")], body)
    simplified = simplify(module, get_mode(mode)).module
    same(module, simplified, mode)
    alive = relax.transform.DeadCodeElimination()(module)
    before, after = (coverage.report(each)["macs"] for each in (alive, simplified))
    assert after <= before


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("size", [5, 6, 7, 8, 9])
@pytest.mark.parametrize("padding", [0, 1])
def test_the_number_of_windows_stays_the_same(stride: int, size: int, padding: int) -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        layers = Layers(emit)
        return layers.conv(layers.conv(inputs[0], 4, 3, 2, padding), 4, 1, stride)

    module = module_of([((1, size, size + 1, 4), "int8")], body)
    moved, names = move_strides(module, MODE)
    assert windows(moved) == [("conv2d", (2 * stride,) * 2), ("conv2d", (1, 1))]
    assert len(names) == 1
    same(module, moved)


def test_scales_of_rows_keep_all_rows() -> None:
    check_pass(
        "move-strides",
        """\
!0 = !quant.uniform<i8:f32, 0.5>
!1 = !quant.uniform<i32:f32, 0.25>
!2 = !quant.uniform<i8:f32:1, {0.5,0.25}>
main
  %0: tensor<1x2x2x1xi8> loc("x")
  %1 = qnn.conv2d(%0, const<1x1x1x1xi8> [3]) {in_type = !0, weight_type = !0, strides = [1, 1], \
padding = [0, 0, 0, 0], dilation = [1, 1], groups = 1, accum_dtype = "int32"} : tensor<1x2x2x1xi32> loc("sums")
  %2 = qnn.requantize(%1) {in_type = !1, out_type = !2} : tensor<1x2x2x1xi8> loc("by_row")
  %3 = qnn.requantize(%2) {in_type = !2, out_type = !0} : tensor<1x2x2x1xi8> loc("whole")
  %4 = qnn.conv2d(%3, const<1x1x1x1xi8> [2]) {in_type = !0, weight_type = !0, strides = [2, 2], \
padding = [0, 0, 0, 0], dilation = [1, 1], groups = 1, accum_dtype = "int32"} : tensor<1x1x1x1xi32> loc("y")
  return %4
""",
    )
