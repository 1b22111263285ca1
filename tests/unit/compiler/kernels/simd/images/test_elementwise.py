"""Elementwise kernels equal the oracle of every mode, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.images import elementwise
from service.compiler.kernels.simd.images.table import table
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import MODES_OF
from service.core.models.arrays import Array
from tests.support.examples import examples
from tests.support.images import (
    RUNNABLE,
    arrays,
    blocked,
    laid_out,
    quantized_types,
    read_back,
    run,
    shapes,
    stored,
    with_halo,
)
from tests.support.qnn_models import STORED_MODES

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
EXAMPLES = settings(max_examples=examples(40), deadline=None)
STORAGES = st.sampled_from(["int8", "uint8"])
TYPE = QuantizedType("int8", (0.1,), (3,))
PAIRS = ("add", "mul", "sub", "prelu", "squared_difference")
DEFINED = [(mode, name) for mode in STORED_MODES for name in PAIRS if name in get_mode(mode).formulas]
DEFINED.remove(("qnnpack", "add"))  # no kernel computes it


def variable(values: Array) -> relax.Var:
    return relax.Var("x", relax.TensorType(values.shape, str(values.dtype)))


def holds(isa: Isa, kernel: Kernel, destination: Image, expected: Array, fill: int, *inputs: Array) -> None:
    """Checks that a kernel writes the stored values `expected`, and `fill` to the halo."""
    written = read_back(destination, run(isa, kernel, *inputs))[..., : destination.channels]
    np.testing.assert_array_equal(written, with_halo(destination, expected, fill))


@EXAMPLES
@given(st.data(), st.sampled_from(DEFINED), STORAGES)
def test_two_operands(data: st.DataObject, defined: tuple[str, str], storage: str) -> None:
    draw, mode, name = data.draw, get_mode(defined[0]), defined[1]
    isa, shape = draw(st.sampled_from(RUNNABLE)), draw(shapes())
    same = draw(st.sampled_from([None, 0.125]))  # additions of operands with equal scales have shorter code
    types = [draw(quantized_types(storage, same)) for _ in range(3)]
    own = [shape, shape]
    if draw(st.booleans()):  # one operand has a single pixel, as in squeeze-and-excitation
        own[draw(st.integers(0, 1))] = (shape[0], 1, 1, shape[3])
    values = [draw(arrays(each, storage)) for each in own]
    operation = Operation(getattr(ops, name)(*map(variable, values), *types))

    images = [draw(blocked(isa, each)) for each in own]
    destination = draw(blocked(isa, shape))
    kernel = elementwise.pairwise(isa, images[0], images[1], destination, operation, mode, parallel=draw(st.booleans()))
    inputs = [laid_out(image, stored(each)) for image, each in zip(images, values, strict=True)]
    expected = mode.formula(operation).evaluate(operation, *values)
    holds(isa, kernel, destination, stored(expected), stored_zero_point(types[2]), *inputs)


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), STORAGES, STORAGES)
def test_requantize(data: st.DataObject, mode_name: str, from_storage: str, to_storage: str) -> None:
    draw, mode = data.draw, get_mode(mode_name)
    isa, shape = draw(st.sampled_from(RUNNABLE)), draw(shapes())
    same = draw(st.sampled_from([None, 0.125]))  # with equal scales, only the zero point changes
    in_type, out_type = draw(quantized_types(from_storage, same)), draw(quantized_types(to_storage, same))
    values = draw(arrays(shape, from_storage))
    operation = Operation(ops.requantize(variable(values), in_type, out_type))

    source, destination = (draw(blocked(isa, shape)) for _ in range(2))
    kernel = elementwise.look_up(isa, source, destination, operation, mode, parallel=draw(st.booleans()))
    expected = mode.formula(operation).evaluate(operation, values)
    holds(isa, kernel, destination, stored(expected), stored_zero_point(out_type), laid_out(source, stored(values)))


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize("width", [1, 2, 3, 64])
def test_every_byte_is_looked_up(isa: Isa, width: int) -> None:
    """Looks up all 256 bytes in every lane, with every width of vectors that a run of pixels may need."""
    image = Image(256, 1, width, isa.lanes, isa.lanes, Halo(0, 0, 0, 1))
    values = np.random.default_rng(width).integers(0, 256, 256).astype(np.uint8)
    lane = np.arange(width * isa.lanes).reshape(1, 1, width, isa.lanes)
    pixels = (np.arange(256).reshape(-1, 1, 1, 1) + lane).astype(np.uint8)
    holds(isa, table(isa, image, image, values, 9, parallel=False), image, values[pixels], 9, laid_out(image, pixels))


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("name", ["add", "mul"])
def test_layers_that_differ_in_numbers_share_one_program(name: str, mode: str) -> None:
    isa = ISAS["x86-64-v3"]
    image = Image(1, 8, 8, 16, isa.lanes, Halo(1, 1, 1, 1))
    operand = relax.Var("x", relax.TensorType(image.shape, "int8"))
    programs = set()
    for scale, zero_point in ((0.25, 3), (0.3, -7)):
        types = QuantizedType("int8", (scale,), (zero_point,)), TYPE, QuantizedType("int8", (0.5,), (zero_point,))
        operation = Operation(getattr(ops, name)(operand, operand, *types))
        programs.add(elementwise.pairwise(isa, image, image, image, operation, get_mode(mode), parallel=False).content)
    assert len(programs) == 1


@pytest.mark.parametrize(
    ("rhs", "reason"),
    [(Image(1, 8, 8, 1, 8), "channels are broadcast"), (Image(1, 8, 8, 16, 0), "not in blocks")],
)
def test_other_operands_are_declined(rhs: Image, reason: str) -> None:
    isa = ISAS["x86-64-v3"]
    image = Image(1, 8, 8, 16, isa.lanes)
    operands = [relax.Var("x", relax.TensorType(each.shape, "int8")) for each in (image, rhs)]
    operation = Operation(ops.add(operands[0], operands[1], TYPE, TYPE, TYPE))
    with pytest.raises(Declined, match=reason):
        elementwise.pairwise(isa, image, rhs, image, operation, get_mode("xnnpack"), parallel=False)


def test_a_type_of_sixteen_bits_is_declined() -> None:
    isa = ISAS["x86-64-v3"]
    image = Image(1, 8, 8, 16, isa.lanes)
    wide = QuantizedType("int16", (0.1,))
    operation = Operation(ops.requantize(relax.Var("x", relax.TensorType(image.shape, "int16")), wide, TYPE))
    with pytest.raises(Declined, match="8 bits"):
        elementwise.look_up(isa, image, image, operation, get_mode("xnnpack"), parallel=False)
