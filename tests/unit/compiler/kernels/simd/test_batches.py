"""Layers on images of one pixel equal the oracle: classifiers for one image or many, and matrix products of any
size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.group import Group, image_shape
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image, Stack
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.arrays import Array
from tests.support.convolutions import Shape, group_of, module_and_inputs
from tests.support.examples import examples
from tests.support.images import RUNNABLE, laid_out, read_back, run, stored
from tests.support.qnn_models import SIGNED_MODES, Emit, float32, module_of

import tvm  # isort: skip

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")


def kernel_and_output(
    isa: Isa, mode: Mode, group: Group, values: list[Array], expected: Array, *, produced: bool
) -> tuple[Kernel, Array]:
    """Returns the library's kernel for a group, and its output for `values`, in the shape of `expected`."""
    library = SimdLibrary(isa, mode)
    demands = library.demands(group, [produced] * len(values))
    of_shapes = [image_shape(array.shape) for array in (*values, expected)]
    blocks = [*(0 if demand.packed else isa.lanes for demand in demands), isa.lanes]
    images = [Image(*shape, block) for shape, block in zip(of_shapes, blocks, strict=True) if shape is not None]
    kernel = library.kernel(group, images[:-1], images[-1])
    pairs = zip(images, values, strict=False)
    inputs = [laid_out(image, stored(each).reshape(image.shape)) for image, each in pairs]
    return kernel, read_back(images[-1], run(isa, kernel, *inputs))[..., : images[-1].channels].reshape(expected.shape)


@settings(max_examples=examples(30), deadline=None)
@given(st.data(), st.sampled_from(SIGNED_MODES), st.sampled_from(["int8", "uint8"]))
def test_images_of_one_pixel(data: st.DataObject, mode_name: str, storage: str) -> None:
    draw, mode, isa = data.draw, get_mode(mode_name), data.draw(st.sampled_from(RUNNABLE))
    widths, groups = st.sampled_from([1, 3, 4, 16, 20, 33]), draw(st.sampled_from([1, 1, 3]))
    batch, strides = draw(st.sampled_from([1, 2, 3, 8, 64])), draw(st.sampled_from([(1, 1), (2, 2)]))
    window, nothing = Window((1, 1), strides), (0, 0, 0, 0)
    shape = Shape((batch, 1, 1), groups, draw(widths), draw(widths), window, nothing, draw(st.booleans()))
    module, values = module_and_inputs(data, shape, storage)
    expected = stored(oracle.run(module, mode, values)[0])
    try:
        _, written = kernel_and_output(isa, mode, group_of(module), values, expected, produced=draw(st.booleans()))
    except Declined:  # no kernel computes the mode's formula for this scale
        return
    np.testing.assert_array_equal(written, expected)


def test_only_images_of_one_pixel_are_stacked() -> None:
    """A layer is returned unchanged if it has a single image, or if its images have a halo or several pixels."""
    pixels, image, bordered = Image(8, 1, 1, 32, 16), Image(8, 2, 1, 32, 16), Image(8, 1, 1, 32, 16, Halo(1, 1, 1, 1))
    alone = Window((1, 1))
    assert Layer(pixels, pixels, Window((1, 1), (2, 2))).stacked == Layer(Stack.of(pixels), Stack.of(pixels), alone)
    for layer in (
        Layer(image, image, alone),
        Layer(bordered, pixels, Window((3, 3), padding=(1, 1))),
        Layer(pixels, bordered, alone),
        Layer(pixels, pixels, alone, bordered),
        Layer(Image(1, 1, 1, 32, 16), Image(1, 1, 1, 32, 16), alone),
    ):
        assert layer.stacked is layer


def test_a_stack_is_the_same_memory() -> None:
    images = Image(5, 1, 1, 40, 16)
    stack = Stack.of(images)
    assert stack.size_bytes == images.size_bytes
    assert (stack.row, stack.plane, stack.origin) == (images.image, images.plane, images.origin)
    assert stack.shape == (1, 5, 1, 40)


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize(("rows", "depth", "filters"), [(1, 4096, 1000), (64, 1024, 1024), (7, 2049, 129), (1, 1, 1)])
def test_products_of_large_matrices(isa: Isa, rows: int, depth: int, filters: int) -> None:
    """Multiplies one row or many, with sums of up to 4096 terms. Half of the values are the smallest or the largest."""
    rng, mode = np.random.default_rng(rows * depth), get_mode("xnnpack")
    values, weights = (
        np.where(rng.random(shape) < 0.5, rng.choice([-128, 127], shape), rng.integers(-128, 128, shape))
        for shape in ((rows, depth), (filters, depth))
    )
    in_type, weight_type = QuantizedType("int8", (0.5,), (-128,)), QuantizedType("int8", (0.5,))
    out_type = QuantizedType("int8", (float32(0.5 * depth**0.5 * 60),), (3,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        total = emit(ops.dense(inputs[0], relax.const(weights.astype(np.int8)), None, in_type, weight_type))
        return emit(ops.requantize(total, accumulator_type(in_type, weight_type, axis=1), out_type))

    module: tvm.IRModule = module_of([((rows, depth), "int8")], body)
    inputs = [values.astype(np.int8)]
    expected = stored(oracle.run(module, mode, inputs)[0])
    kernel, written = kernel_and_output(isa, mode, group_of(module), inputs, expected, produced=True)
    assert kernel.family in ("conv", "matrix")
    np.testing.assert_array_equal(written, expected)
