"""The kernels of pools and means equal the oracle of every mode, bit for bit, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.images.pool import avg_pool, max_pool, mean
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.models.arrays import Array
from tests.support.examples import examples
from tests.support.images import (
    RUNNABLE,
    Draw,
    at_a_wall,
    built,
    check_image,
    laid_out,
    read_back,
    run,
    stored,
)
from tests.support.pools import mean_of_an_image, pooled, windows
from tests.support.qnn_models import STORED_MODES, i8

import tvm  # isort: skip

runs_here = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
# Failing examples are not shrunk, because each example compiles a kernel.
EXAMPLES = settings(max_examples=examples(80), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
RUNNING = st.sampled_from(RUNNABLE or list(ISAS.values()))
STORAGES = st.sampled_from(["int8", "uint8"])
POOLS = st.sampled_from(["avg_pool2d", "max_pool2d"])
TYPE = i8(0.1, 3)


def image_of(isa: Isa, values: Array, halo: Halo = NO_HALO) -> Image:
    batch, height, width, channels = values.shape
    return Image(batch, height, width, channels, isa.lanes, halo)


def kernel_of(isa: Isa, mode: Mode, operation: Operation, source: Image, destination: Image, parallel: bool) -> Kernel:
    if operation.name == "qnn.max_pool2d":
        return max_pool(isa, source, destination, operation, parallel=parallel)
    write = {"qnn.avg_pool2d": avg_pool, "qnn.mean": mean}[operation.name]
    return write(isa, source, destination, operation, mode, parallel=parallel)


def holds(draw: Draw, isa: Isa, mode: Mode, operation: Operation, x: Array) -> None:
    def make(source: Image, destination: Image) -> Kernel:
        return kernel_of(isa, mode, operation, source, destination, draw(st.booleans()))

    expected = mode.formula(operation).evaluate(operation, x)
    check_image(draw, isa, x, expected, stored_zero_point(operation.per_tensor("out_type")), make)


@runs_here
@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), RUNNING, POOLS, STORAGES)
def test_windows(data: st.DataObject, mode: str, isa: Isa, name: str, storage: str) -> None:
    holds(data.draw, isa, get_mode(mode), *windows(data.draw, mode, name, storage))


@runs_here
@EXAMPLES
@given(
    st.data(), st.sampled_from([mode for mode in STORED_MODES if "mean" in get_mode(mode).formulas]), RUNNING, STORAGES
)
def test_mean_of_an_image(data: st.DataObject, mode: str, isa: Isa, storage: str) -> None:
    operation, x = mean_of_an_image(data.draw, storage)
    try:
        holds(data.draw, isa, get_mode(mode), operation, x)
    except Declined:
        assert mode == LITERT_REFERENCE
        # With a smaller scale, the multiplier only shifts to the right, and there is a kernel for it.
        assert operation.per_tensor("in_type").scale >= operation.per_tensor("out_type").scale / 2


@pytest.mark.parametrize("isa", RUNNABLE[:1], ids=lambda isa: isa.name)
@pytest.mark.parametrize("storage", ["int8", "uint8"])
@pytest.mark.parametrize("window", [(2, 2), (3, 3), (1, 5), (2, 7)])
def test_every_sum_is_rounded_as_the_oracle_does(isa: Isa, storage: str, window: tuple[int, int]) -> None:
    """The input contains every sum that a window can have. Outputs are computed four at a time, or one at a time."""
    count, low = window[0] * window[1], np.iinfo(storage).min
    sums = np.arange(255 * count + 1)
    filled = np.clip(sums[:, None] - 255 * np.arange(count), 0, 255) + low
    x = filled.reshape(1, -1, *window, 1).transpose(0, 2, 1, 3, 4).reshape(1, window[0], -1, 1).astype(storage)
    mode, in_type = get_mode(XNNPACK), QuantizedType(storage, (0.5,))
    for strides in (window, (1, 1)):
        operation = pooled("avg_pool2d", x.shape, in_type, in_type, pool_size=window, strides=strides)
        expected = mode.formula(operation).evaluate(operation, x)
        source, destination = image_of(isa, x), image_of(isa, expected)
        kernel = avg_pool(isa, source, destination, operation, mode, parallel=False)
        written = read_back(destination, run(isa, kernel, laid_out(source, stored(x))))
        np.testing.assert_array_equal(written[..., :1], stored(expected))


def test_the_largest_dividend_is_divided_exactly() -> None:
    """Computes `average._quotient` in NumPy for every multiple of the divisor and the numbers just below these."""
    for divisor in [*range(1, 300), 4095, 8191, 16383]:
        multiples = np.arange(1, 257) * divisor
        dividends = np.concatenate([multiples, multiples - 1])
        dividends = dividends[dividends < 1 << 22]
        product = (dividends.astype(np.float32) + np.float32(0.5)) * (np.float32(1) / np.float32(divisor))
        np.testing.assert_array_equal(product.astype(np.int32), dividends // divisor)


def small(isa: Isa, name: str, in_type: QuantizedType = TYPE) -> Kernel:
    """Returns the kernel that pools 8x8 pixels with 16 channels by a 3x3 window. Both images have a halo."""
    image = Image(1, 8, 8, 16, isa.lanes, Halo(1, 1, 1, 1))
    how = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1)}
    operation = pooled(name, image.shape, in_type, in_type, **how)
    return kernel_of(isa, get_mode(XNNPACK), operation, image, image, False)


@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
def test_layers_that_differ_in_numbers_share_their_code(name: str) -> None:
    isa = ISAS["x86-64-v4+vnni"]
    assert small(isa, name).content == small(isa, name, i8(0.7, -100)).content


@runs_here
@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
def test_memory_after_a_buffer_is_not_accessed(isa: Isa, name: str) -> None:
    """A kernel that accesses memory after the end of a buffer crashes the test run."""
    kernel = small(isa, name)
    source, destination = (at_a_wall(kernel.output_bytes, "uint8") for _ in range(2))
    source[:] = 1
    arguments = [tvm.runtime.tensor(constant) for constant in kernel.constants]
    built(isa, kernel)(tvm.runtime.from_dlpack(source), *arguments, tvm.runtime.from_dlpack(destination))
    assert destination[0] == 128 + 3
