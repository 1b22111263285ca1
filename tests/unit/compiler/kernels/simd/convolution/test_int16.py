"""The kernels of layers with 16-bit activations equal the oracle, bit for bit, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.convolution import int16
from service.compiler.kernels.simd.convolution.plain import plain_kernel
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import MODES
from tests.support.convolutions import group_of
from tests.support.examples import examples
from tests.support.images import RUNNABLE, at_a_wall, built, run
from tests.support.qnn_models import Emit, float32, module_of

import tvm  # isort: skip

runs_here = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
EXAMPLES = settings(max_examples=examples(15), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
RUNNING = st.sampled_from(RUNNABLE or list(ISAS.values()))
SMALL = st.tuples(st.integers(1, 3), st.integers(1, 3))
LOW, HIGH = -(1 << 15), (1 << 15) - 1
MODE = get_mode(MODES[0])


def module(
    rng: np.random.Generator,
    weight: np.ndarray,
    *,
    groups: int = 1,
    size: tuple[int, int] = (5, 6),
    strides: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, ...] = (0, 0, 0, 0),
    batch: int = 2,
) -> tuple[tvm.IRModule, np.ndarray]:
    """Returns the module of a convolution, or of a dense layer if `weight` has two dimensions, and an input for it."""
    filters, channels = len(weight), weight.shape[-1] * groups
    in_type = QuantizedType("int16", (float32(3e-4),))
    scales = tuple(map(float32, rng.uniform(1e-3, 2e-2, filters)))
    weight_type = QuantizedType("int8", scales, axis=0)
    low, high = (
        sorted(rng.choice(np.arange(LOW, HIGH + 1), 2, replace=False).tolist()) if rng.integers(2) else (LOW, HIGH)
    )
    out_type = QuantizedType("int16", (float32(10 ** rng.uniform(-3, 1)),), storage_min=low, storage_max=high)
    shape = (batch, channels) if weight.ndim == 2 else (batch, *size, channels)
    x = rng.integers(LOW, HIGH, shape, endpoint=True).astype(np.int16)
    if rng.integers(3) == 0:
        x[:] = rng.choice(np.array([LOW, HIGH]))
    large = 10 ** int(rng.choice([6, 11]))  # with biases up to 10**11, sums do not fit 32 bits
    bias = relax.const(rng.integers(-large, large, filters), "int64") if rng.integers(4) else None

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        common = (inputs[0], relax.const(weight), bias, in_type, weight_type)
        if weight.ndim == 2:
            sums = emit(ops.dense(*common, accum_dtype="int64"))
        else:
            window = {"strides": strides, "dilation": dilation, "padding": padding, "groups": groups}
            sums = emit(ops.conv2d(*common, **window, accum_dtype="int64"))  # type: ignore[arg-type]
        return emit(ops.requantize(sums, accumulator_type(in_type, weight_type, weight.ndim - 1, "int64"), out_type))

    return module_of([(x.shape, "int16")], body), x


def weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random weights, or weights that all have the same extreme value, so that sums exceed 32 bits."""
    if rng.integers(3) == 0:
        return np.full(shape, rng.choice(np.array([-128, 127])), np.int8)
    return rng.integers(-128, 127, shape, endpoint=True).astype(np.int8)


def holds(isa: Isa, model: tvm.IRModule, x: np.ndarray) -> str:
    """Checks a kernel against the oracle. Returns how often the kernel adds its sums to 64-bit accumulators."""
    (expected,) = oracle.run(model, MODE, [x])
    made = plain_kernel(isa, MODE, group_of(model))
    top, left, bottom, right = made.padding.sides
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0))) if x.ndim == 4 else x
    actual = run(isa, made.kernel, padded.reshape(-1), dtype="int16")
    np.testing.assert_array_equal(actual.reshape(expected.shape), expected)
    return str(made.kernel.facts["widened"])


@runs_here
@EXAMPLES
@given(SMALL, SMALL, SMALL, st.integers(1, 40), st.integers(1, 40), st.integers(0, 1 << 32), RUNNING)
def test_convolution(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    channels: int,
    filters: int,
    seed: int,
    isa: Isa,
) -> None:
    rng = np.random.default_rng(seed)
    size = (int(rng.integers(7, 10)), int(rng.integers(7, 20)))
    padding = tuple(int(rng.integers(0, 3)) for _ in range(4))
    model = module(
        rng, weights(rng, (filters, *kernel, channels)), size=size, strides=strides, dilation=dilation, padding=padding
    )
    holds(isa, *model)


@runs_here
@EXAMPLES
@given(SMALL, st.integers(2, 6), st.integers(2, 9), st.integers(1, 9), st.integers(0, 1 << 32), RUNNING)
def test_groups(kernel: tuple[int, int], groups: int, channels: int, filters: int, seed: int, isa: Isa) -> None:
    rng = np.random.default_rng(seed)
    holds(isa, *module(rng, weights(rng, (groups * filters, *kernel, channels)), groups=groups))


@runs_here
@EXAMPLES
@given(st.integers(1, 1200), st.integers(1, 60), st.integers(1, 20), st.integers(0, 1 << 32), RUNNING)
def test_dense(depth: int, filters: int, batch: int, seed: int, isa: Isa) -> None:
    rng = np.random.default_rng(seed)
    holds(isa, *module(rng, weights(rng, (filters, depth)), batch=batch))


@runs_here
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
@pytest.mark.parametrize(
    ("shape", "widened"),
    [((3, 516), "at the end"), ((3, 517), "each section"), ((3, 1031), "each section"), ((3, 3, 3, 100), "each row")],
)
def test_sums_are_widened_before_they_leave_32_bits(isa: Isa, shape: tuple[int, ...], widened: str) -> None:
    rng = np.random.default_rng(0)
    model, x = module(rng, np.full(shape, 127, np.int8))
    for extreme in (LOW, HIGH):
        assert holds(isa, model, np.full_like(x, extreme)) == widened


@runs_here
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((4, 3, 3, 3), 1), ((20, 3, 3, 5), 1), ((40, 7), 1), ((16, 1, 1, 1), 1), ((20, 3, 3, 2), 10)],
)
def test_memory_after_a_buffer_is_not_accessed(isa: Isa, shape: tuple[int, ...], groups: int) -> None:
    """A kernel that accesses memory after the end of a buffer crashes the test run."""
    model, x = module(
        np.random.default_rng(1),
        np.ones(shape, np.int8),
        size=(4, 8),
        batch=32 if len(shape) == 2 else 2,
        groups=groups,
    )
    (expected,) = oracle.run(model, MODE, [x])
    kernel = plain_kernel(isa, MODE, group_of(model)).kernel
    source, destination = (
        at_a_wall(x.nbytes, "uint8").view(np.int16),
        at_a_wall(expected.nbytes, "uint8").view(np.int16),
    )
    source[:] = x.reshape(-1)
    arguments = [tvm.runtime.tensor(constant) for constant in kernel.constants]
    built(isa, kernel)(tvm.runtime.from_dlpack(source), *arguments, tvm.runtime.from_dlpack(destination))
    np.testing.assert_array_equal(destination.reshape(expected.shape), expected)


def test_sections_contain_all_pairs() -> None:
    for pairs in range(1100):
        sections = int16._sections(pairs, 257)
        starts = [first + index * length for first, count, length in sections for index in range(count)]
        lengths = [length for _, count, length in sections for _ in range(count)]
        assert starts == [sum(lengths[:index]) for index in range(len(lengths))]
        assert (sum(lengths), max(lengths, default=0)) == (pairs, min(pairs, 257))


@pytest.mark.parametrize(
    ("shape", "groups", "why"), [((80, 3, 3, 2), 40, "its 40 groups"), ((4, 3, 3, 1), 4, "its 4 groups")]
)
def test_declined(shape: tuple[int, ...], groups: int, why: str) -> None:
    model, _ = module(np.random.default_rng(0), np.ones(shape, np.int8), groups=groups)
    with pytest.raises(Declined, match=why):
        plain_kernel(next(iter(ISAS.values())), MODE, group_of(model))
