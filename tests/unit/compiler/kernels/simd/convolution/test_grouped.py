"""Grouped convolutions equal the oracle, with groups of any size relative to blocks of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.arithmetic.epilogue import Epilogue
from service.compiler.kernels.arithmetic.numerics import addition, bounds, requantization
from service.compiler.kernels.group import Group, stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, Window, folded_bias
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.convolution.grouped import Grouping, Scheme, grouped, ranked
from service.compiler.kernels.simd.convolution.tiles import candidates
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.numerics.sums.accumulate import centered
from service.compiler.qnn.operation import value_of
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.arrays import Array
from tests.support.convolutions import Shape, group_of, module_and_inputs
from tests.support.examples import examples
from tests.support.images import (
    RUNNABLE,
    blocked,
    laid_out,
    read_back,
    run,
    stored,
    with_halo,
)
from tests.support.qnn_models import SIGNED_MODES, Emit, module_of

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
# The channels of a group: fewer than `Isa.group`, fewer than a block, whole blocks, and other numbers.
WIDTHS = st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 17, 32])


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (1, 4), (5, 2)]))
    strides, dilation = (draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2)])) for _ in range(2))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(4)) if kernel != (1, 1) or draw(st.booleans()) else (0,) * 4
    top, left = padding[:2]
    smallest = [step * (taps - 1) + 1 for step, taps in zip(dilation, kernel, strict=True)]
    image = (draw(st.integers(1, 3)), *(extent + draw(st.integers(0, 9)) for extent in smallest))
    channels, filters = draw(WIDTHS), draw(WIDTHS)
    groups = draw(st.integers(2, max(2, 80 // max(channels, filters))))
    window = Window(kernel, strides, dilation, (top, left))
    return Shape(image, groups, channels, filters, window, padding, draw(st.booleans()))  # type: ignore[arg-type]


def kernel_of(isa: Isa, mode: Mode, group: Group, shape: Shape, images: list[Image], data: st.DataObject) -> Kernel:
    """Returns a kernel for the layer, by any scheme, not only the best one."""
    source, *residual, destination = images
    layer = Layer(source, destination, shape.window, residual[0] if residual else None)
    weights, bias = (value_of(operand) for operand in group.core.call.args[1:])
    assert weights is not None
    assert bias is not None
    reals = centered(weights, group.core.quantized("weight_type")).astype(np.int32)
    filled = destination.blocks * isa.lanes
    zero_point = stored_zero_point(group.core.per_tensor("in_type")) - isa.operand_zero_point
    assert group.requantize is not None
    scaled, own = (
        requantization(mode, group.requantize, filled, stored=group.addition is None),
        bounds(group.requantize.per_tensor("out_type")),
    )
    epilogue = Epilogue(scaled, own)
    if group.addition is not None:
        added = addition(mode, group.addition, group.residual_is_lhs)
        epilogue = Epilogue(scaled, bounds(group.out_type), added, own)
    grouping = Grouping.of(reals, shape.groups)
    schemes = [
        Scheme(tile, own) for tile in candidates(isa, layer) for own in (False, True) if tile.blocks == 1 or not own
    ]
    scheme = data.draw(st.sampled_from(schemes) | st.sampled_from(ranked(isa, layer, grouping, 2.0)[0][:9]))
    folded = folded_bias(bias, reals, zero_point, filled)
    return grouped(isa, layer, grouping, reals, folded, epilogue, scheme, parallel=data.draw(st.booleans()))


@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.sampled_from(SIGNED_MODES), st.sampled_from(["int8", "uint8"]))
def test_every_scheme_equals_the_oracle(data: st.DataObject, mode_name: str, storage: str) -> None:
    draw, mode, isa = data.draw, get_mode(mode_name), data.draw(st.sampled_from(RUNNABLE))
    shape = draw(shapes())
    module, values = module_and_inputs(data, shape, storage)
    group, expected = group_of(module), stored(oracle.run(module, mode, values)[0])
    fill, halo = stored_zero_point(group.core.per_tensor("in_type")), Halo(*shape.padding)
    wanted = [halo, *(NO_HALO for _ in values)]
    of_shapes = [*(array.shape for array in values), expected.shape]
    images = [draw(blocked(isa, each, around)) for each, around in zip(of_shapes, wanted, strict=True)]
    try:
        kernel = kernel_of(isa, mode, group, shape, images, data)
    except Declined:  # no kernel computes the mode's formula for this scale
        return
    inputs = [laid_out(image, stored(each), fill) for image, each in zip(images, values, strict=False)]
    written = read_back(images[-1], run(isa, kernel, *inputs))[..., : images[-1].channels]
    np.testing.assert_array_equal(written, with_halo(images[-1], expected, stored_zero_point(group.out_type)))


def resnext(channels: int, filters: int, groups: int) -> Group:
    shape = Shape((1, 14, 14), groups, channels // groups, filters // groups, Window((3, 3)), (1, 1, 1, 1))
    kind, weight_type = QuantizedType("int8", (0.1,)), QuantizedType("int8", (0.01,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        weights = relax.const(np.ones(shape.weights, np.int8))
        total = emit(ops.conv2d(inputs[0], weights, None, kind, weight_type, padding=(1, 1, 1, 1), groups=groups))
        return emit(ops.requantize(total, accumulator_type(kind, weight_type, axis=3), kind))

    return group_of(module_of([(shape.input, "int8")], body))


@pytest.mark.parametrize(
    ("channels", "groups", "reads"),
    [(128, 32, "72, own"), (512, 32, f"{32 * 4 * 9}, shared"), (1024, 32, f"{32 * 8 * 9}, shared")],
)
def test_the_cheaper_type_of_reduction_step_is_chosen(channels: int, groups: int, reads: str) -> None:
    """The groups of ResNeXt have 4, 16 or 32 channels. Each group gets its own reduction steps if these cost less than
    products with zeros."""
    isa, group = ISAS["x86-64-v4+vnni"], resnext(channels, channels, groups)
    library = SimdLibrary(isa, get_mode("xnnpack"))
    (demand,) = library.demands(group, [False])
    assert (demand.packed, demand.halo) == (False, Halo(1, 1, 1, 1))
    image = Image(1, 14, 14, channels, isa.lanes)
    kernel = library.kernel(group, [image], image)
    assert kernel.family == "grouped"
    # If a tile has two blocks, there are half as many tiles.
    assert kernel.facts["reads"] in (reads, f"{int(reads.split(',')[0]) // 2}, shared")


def test_layers_of_one_shape_share_a_program() -> None:
    """Weights are constants of the kernel and not part of its code, unless they exceed int8."""
    isa = ISAS["x86-64-v4+vnni"]
    layer = Layer(Image(1, 8, 8, 32, 16), Image(1, 6, 6, 32, 16), Window((3, 3)))
    (scheme, *_), _ = ranked(isa, layer, grouping := Grouping(8, 8, 32), 2.0)
    mode, group = get_mode("xnnpack"), resnext(32, 32, 4)
    assert group.requantize is not None
    epilogue = Epilogue(requantization(mode, group.requantize, 32, stored=True), bounds(group.out_type))

    def content(weights: Array) -> str:
        bias = np.zeros(32, np.int32)
        return grouped(isa, layer, grouping, weights, bias, epilogue, scheme, parallel=False).content

    weights = np.full((32, 3, 3, 8), 5)
    assert content(weights) == content(-weights) == content(0 * weights)
    assert content(weights) != content(40 * weights)
