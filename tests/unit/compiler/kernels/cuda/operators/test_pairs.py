"""Elementwise kernels for GPUs equal the oracle of every mode, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.cuda.operators.pairs import pairwise
from service.compiler.kernels.cuda.operators.reorder import look_up, table
from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Halo, Image
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.numerics.functions.softmax import TableSoftmax
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import MODES_OF
from service.core.models.arrays import Array
from tests.support.cuda.cards import as_isa
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import (
    arrays,
    blocked,
    laid_out,
    quantized_types,
    read_back,
    run,
    stored,
    with_halo,
)
from tests.support.qnn_models import SIGNED_MODES, STORED_MODES

CARD = as_isa("sm_80")
EXAMPLES = settings(max_examples=examples(15), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
STORAGES = st.sampled_from(["int8", "uint8"])
TYPE = QuantizedType("int8", (0.1,), (3,))
OTHER = QuantizedType("int8", (0.07,), (-9,))
PAIRS = ("add", "mul", "sub", "prelu", "squared_difference")
DEFINED = [(mode, name) for mode in STORED_MODES for name in PAIRS if name in get_mode(mode).formulas]
SIGNED = [(mode, name) for mode, name in DEFINED if mode in SIGNED_MODES]
SHAPES = st.sampled_from([(2, 3, 5, 1), (1, 4, 2, 33), (2, 1, 1, 70), (2, 3, 2, 31)])
IMAGE = Image(1, 8, 8, 16, BLOCK, Halo(1, 1, 1, 1))


def variable(values: Array) -> relax.Var:
    return relax.Var("x", relax.TensorType(values.shape, str(values.dtype)))


def holds(kernel: Kernel, destination: Image, expected: Array, fill: int, *inputs: Array) -> None:
    """Checks that a kernel writes the stored values `expected`, and `fill` to the halo."""
    written = read_back(destination, run(CARD, kernel, *inputs))[..., : destination.channels]
    np.testing.assert_array_equal(written, with_halo(destination, expected, fill))


@pytest.mark.parametrize(("mode_name", "name"), DEFINED)
@pytest.mark.parametrize("scales", [(0.1, 0.07, 0.3), pytest.param((0.125, 0.125, 0.125), marks=pytest.mark.slow)])
def test_pairs_of_all_sizes(mode_name: str, name: str, scales: tuple[float, ...]) -> None:
    """The operands are 256 x 64 pairs of values, from the whole range of uint8."""
    mode = get_mode(mode_name)
    types = [QuantizedType("uint8", (scale,), (point,)) for scale, point in zip(scales, (7, 255, 30), strict=True)]
    pairs = np.meshgrid(np.arange(256, dtype=np.uint8), np.linspace(0, 255, 64).astype(np.uint8))
    values = [each.reshape(1, 32, 16, BLOCK) for each in pairs]
    operation = Operation(getattr(ops, name)(*map(variable, values), *types))
    image = Image(1, 32, 16, BLOCK, BLOCK)
    kernel = pairwise(image, image, image, operation, mode)
    inputs = [laid_out(image, each) for each in values]
    holds(kernel, image, mode.formula(operation).evaluate(operation, *values), 30, *inputs)


@EXAMPLES
@given(st.data(), st.sampled_from(SIGNED), STORAGES)
def test_two_operands(data: st.DataObject, defined: tuple[str, str], storage: str) -> None:
    draw, mode, name = data.draw, get_mode(defined[0]), defined[1]
    shape = draw(SHAPES)
    types = [draw(quantized_types(storage)) for _ in range(3)]
    own = [shape, shape]
    if draw(st.booleans()):  # one operand has a single pixel, as in squeeze-and-excitation
        own[draw(st.integers(0, 1))] = (shape[0], 1, 1, shape[3])
    values = [draw(arrays(each, storage)) for each in own]
    operation = Operation(getattr(ops, name)(*map(variable, values), *types))

    lhs, rhs = (draw(blocked(CARD, each)) for each in own)
    destination = draw(blocked(CARD, shape))
    kernel = pairwise(lhs, rhs, destination, operation, mode)
    inputs = [laid_out(image, stored(each)) for image, each in zip((lhs, rhs), values, strict=True)]
    expected = mode.formula(operation).evaluate(operation, *values)
    holds(kernel, destination, stored(expected), stored_zero_point(types[2]), *inputs)


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), STORAGES, STORAGES)
def test_requantize(data: st.DataObject, mode_name: str, from_storage: str, to_storage: str) -> None:
    draw, mode, shape = data.draw, get_mode(mode_name), data.draw(SHAPES)
    in_type, out_type = draw(quantized_types(from_storage)), draw(quantized_types(to_storage))
    values = draw(arrays(shape, from_storage))
    operation = Operation(ops.requantize(variable(values), in_type, out_type))

    source, destination = (draw(blocked(CARD, shape)) for _ in range(2))
    kernel = look_up(source, destination, operation, mode)
    expected = mode.formula(operation).evaluate(operation, values)
    holds(kernel, destination, stored(expected), stored_zero_point(out_type), laid_out(source, stored(values)))


def test_every_byte_is_looked_up() -> None:
    image = Image(256, 1, 3, BLOCK, BLOCK, Halo(0, 0, 0, 1))
    values = np.random.default_rng(3).integers(0, 256, 256).astype(np.uint8)
    lane = np.arange(3 * BLOCK).reshape(1, 1, 3, BLOCK)
    pixels = (np.arange(256).reshape(-1, 1, 1, 1) + lane).astype(np.uint8)
    holds(table(image, image, values, 9), image, values[pixels], 9, laid_out(image, pixels))


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("name", ["add", "mul"])
def test_layers_that_differ_in_numbers_share_one_program(name: str, mode: str) -> None:
    operand = relax.Var("x", relax.TensorType(IMAGE.shape, "int8"))
    programs = set()
    for scale, zero_point in ((0.25, 3), (0.3, -7)):
        types = QuantizedType("int8", (scale,), (zero_point,)), TYPE, QuantizedType("int8", (0.5,), (zero_point,))
        operation = Operation(getattr(ops, name)(operand, operand, *types))
        programs.add(pairwise(IMAGE, IMAGE, IMAGE, operation, get_mode(mode)).symbol)
    assert len(programs) == 1


@pytest.mark.parametrize(
    ("rhs", "reason"),
    [
        (Image(1, 8, 8, 1, BLOCK), "channels are broadcast"),
        (Image(1, 8, 8, 16, 0), "not in blocks"),
        (Image(1, 4, 8, 16, BLOCK), "cannot be repeated"),
        (Image(1 << 16, 1 << 15, 1, 16, BLOCK), "2 GiB"),
    ],
)
def test_other_operands_are_declined(rhs: Image, reason: str) -> None:
    operand = relax.Var("x", relax.TensorType(IMAGE.shape, "int8"))
    operation = Operation(ops.add(operand, operand, TYPE, TYPE, TYPE))
    with pytest.raises(Declined, match=reason):
        pairwise(IMAGE, rhs, IMAGE, operation, get_mode("xnnpack"))


def test_another_formula_is_declined() -> None:
    mode = get_mode("xnnpack")
    with pytest.raises(Declined, match="no kernel computes"):
        pair(replace(mode, formulas={**mode.formulas, "add": TableSoftmax()}), "add")


def pair(mode: Mode, name: str) -> Kernel:
    operand = relax.Var("x", relax.TensorType(IMAGE.shape, "int8"))
    operation = Operation(getattr(ops, name)(operand, operand, TYPE, OTHER, TYPE))
    return pairwise(IMAGE, IMAGE, IMAGE, operation, mode)


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_nvrtc_compiles_the_kernel(capability: str) -> None:
    kernels = {kernel.symbol: kernel for mode, name in SIGNED for kernel in [pair(get_mode(mode), name)]}
    for kernel in (*kernels.values(), table(IMAGE, IMAGE, np.zeros(256, np.uint8), 0)):
        compile_for(capability, kernel)
