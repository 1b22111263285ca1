"""Pools and means for GPUs equal the oracle of every mode, bit for bit. Their CUDA source is emulated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.operators.pool import avg_pool, max_pool, mean, shares_of
from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.models.arrays import Array
from tests.support.cuda.cards import as_isa
from tests.support.cuda.device_code import SPILLS, DeviceCode, count
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import Draw, check_image, laid_out, read_back, run, stored
from tests.support.pools import mean_of_an_image, pooled, windows
from tests.support.qnn_models import STORED_MODES, i8

# Failing examples are not shrunk, because each example compiles a kernel.
EXAMPLES = settings(max_examples=examples(16), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
CARD = GPUS["sm_80"]
STORAGES = st.sampled_from(["int8", "uint8"])
POOLS = st.sampled_from(["avg_pool2d", "max_pool2d"])
TYPE = i8(0.1, 3)


def kernel_of(mode: Mode, operation: Operation, source: Image, destination: Image) -> Kernel:
    if operation.name == "qnn.max_pool2d":
        return max_pool(CARD, source, destination, operation)
    write = {"qnn.avg_pool2d": avg_pool, "qnn.mean": mean}[operation.name]
    return write(CARD, source, destination, operation, mode)


def image_of(values: Array, halo: Halo = NO_HALO) -> Image:
    batch, height, width, channels = values.shape
    return Image(batch, height, width, channels, 32, halo)


def holds(draw: Draw, mode: Mode, operation: Operation, x: Array) -> None:
    def make(source: Image, destination: Image) -> Kernel:
        return kernel_of(mode, operation, source, destination)

    expected = mode.formula(operation).evaluate(operation, x)
    zero_point = stored_zero_point(operation.per_tensor("out_type"))
    check_image(draw, as_isa(CARD.capability), x, expected, zero_point, make)


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), POOLS, STORAGES)
def test_windows(data: st.DataObject, mode: str, name: str, storage: str) -> None:
    holds(data.draw, get_mode(mode), *windows(data.draw, mode, name, storage))


@EXAMPLES
@given(st.data(), st.sampled_from([mode for mode in STORED_MODES if "mean" in get_mode(mode).formulas]), STORAGES)
def test_mean_of_an_image(data: st.DataObject, mode: str, storage: str) -> None:
    operation, x = mean_of_an_image(data.draw, storage)
    try:
        holds(data.draw, get_mode(mode), operation, x)
    except Declined:
        assert mode == LITERT_REFERENCE
        # With a smaller scale, the multiplier only shifts to the right, and there is a kernel for it.
        assert operation.per_tensor("in_type").scale >= operation.per_tensor("out_type").scale / 2


@pytest.mark.parametrize("storage", ["int8", "uint8"])
@pytest.mark.parametrize("window", [(2, 2), (2, 7)])
def test_every_sum_is_rounded_as_the_oracle_does(storage: str, window: tuple[int, int]) -> None:
    """The input contains every sum that a window can have."""
    elements, low = window[0] * window[1], np.iinfo(storage).min
    sums = np.arange(255 * elements + 1)
    filled = np.clip(sums[:, None] - 255 * np.arange(elements), 0, 255) + low
    x = filled.reshape(1, -1, *window, 1).transpose(0, 2, 1, 3, 4).reshape(1, window[0], -1, 1).astype(storage)
    mode, in_type = get_mode(XNNPACK), QuantizedType(storage, (0.5,))
    operation = pooled("avg_pool2d", x.shape, in_type, in_type, pool_size=window, strides=window)
    expected = mode.formula(operation).evaluate(operation, x)
    source, destination = image_of(x), image_of(expected)
    kernel = avg_pool(CARD, source, destination, operation, mode)
    written = read_back(destination, run(as_isa(CARD.capability), kernel, laid_out(source, stored(x))))
    np.testing.assert_array_equal(written[..., :1], stored(expected))


def test_few_outputs_of_large_windows_are_shared_between_threads() -> None:
    assert shares_of(CARD, Image(1, 1, 1, 2048, 32), 49) == 8
    assert shares_of(CARD, Image(1, 1, 1, 32, 32), 112 * 112) == 128
    assert shares_of(CARD, Image(64, 56, 56, 64, 32), 9) == 1


@pytest.mark.parametrize("storage", ["int8", "uint8"])
@pytest.mark.parametrize("size", [(23, 24), (56, 56)])
def test_a_mean_is_shared_between_warps(storage: str, size: tuple[int, int]) -> None:
    x = np.random.default_rng(5).integers(-128, 128, (2, *size, 70)).astype(np.int8).view(storage)
    mode, in_type = get_mode(XNNPACK), QuantizedType(storage, (0.5,), (7,))
    operation = pooled("mean", x.shape, in_type, in_type, axes=(1, 2), keepdims=True)
    expected = mode.formula(operation).evaluate(operation, x)
    source, destination = image_of(x, Halo(1, 1, 0, 2)), image_of(expected, Halo(0, 1, 1, 0))
    kernel = mean(CARD, source, destination, operation, mode)
    assert kernel.facts["threads_of_window"] >= 64
    written = read_back(destination, run(as_isa(CARD.capability), kernel, laid_out(source, stored(x))))
    np.testing.assert_array_equal(written[:, :1, 1:, :70], stored(expected))


def small(name: str, in_type: QuantizedType = TYPE) -> Kernel:
    """Returns the kernel that pools 8x8 pixels with 16 channels by a 3x3 window. Both images have a halo."""
    image = Image(1, 8, 8, 16, 32, Halo(1, 1, 1, 1))
    how = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1)}
    return kernel_of(get_mode(XNNPACK), pooled(name, image.shape, in_type, in_type, **how), image, image)


@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
def test_layers_that_differ_in_numbers_share_their_code(name: str) -> None:
    assert small(name).content == small(name, i8(0.7, -100)).content


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_machine_code(capability: str) -> None:
    """No register is spilled to local memory, and a window of nine elements needs no loop."""
    mode, large = get_mode(XNNPACK), (1, 56, 56, 64)
    average = pooled("mean", large, TYPE, TYPE, axes=(1, 2), keepdims=True)
    kernels = [
        small("max_pool2d"),
        small("avg_pool2d"),
        mean(CARD, Image(*large, 32), Image(1, 1, 1, 64, 32), average, mode),
    ]
    codes = [DeviceCode(compile_for(capability, kernel)) for kernel in kernels]
    assert not any(code.usage.stack_bytes for code in codes)
    if capability != "sm_61":  # the disassembler does not support it
        assert not any(count(code.instructions, *SPILLS) for code in codes)
        assert not any(count(loop, "LDG") for code in codes[:2] for loop in code.innermost)
