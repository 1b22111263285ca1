"""The loops that a card's peaks are measured by: nothing but products, as many as they say."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.cuda.cards import CARDS
from service.compiler.kernels.cuda.nvrtc import cubin
from service.compiler.kernels.cuda.peak import OPERANDS, THREADS, peak
from service.compiler.kernels.kernel import DeviceFunction
from tests.support.cuda.device_code import SPILLS, DeviceCode, count
from tests.support.cuda.emulated import EmulatedKernel
from tests.support.cuda.machine_code import needs_nvrtc

BLOCKS, REPETITIONS, INDEPENDENT, WARP = 2, 3, 8, 32


@needs_nvrtc
@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize("capability", ["sm_75", "sm_80", "sm_90"])
def test_the_loop_is_products(capability: str, matrix: bool) -> None:
    kernel = peak(CARDS[capability], 1, 1024, matrix=matrix)
    assert isinstance(kernel.function, DeviceFunction)
    made = DeviceCode(cubin(kernel.function.source, capability, kernel.symbol))
    loop = made.hottest("IMMA" if matrix else "IDP")
    products = count(loop, "IMMA" if matrix else "IDP.4A")
    assert products > 0
    assert products % (INDEPENDENT * (4 if matrix and capability == "sm_75" else 1)) == 0
    assert len(loop) <= products + max(8, products // 8)  # the loop's own count and jump
    assert count(made.instructions, *SPILLS) == 0


@pytest.mark.parametrize("matrix", [True, False])
def test_it_adds_what_it_says(matrix: bool) -> None:
    kernel = peak(CARDS["sm_80"], BLOCKS, REPETITIONS, matrix=matrix)
    assert isinstance(kernel.function, DeviceFunction)
    operands = np.random.default_rng(3).integers(0, 1 << 32, OPERANDS, np.uint32)
    totals = np.zeros(BLOCKS * THREADS, np.int32)
    EmulatedKernel(kernel.function.source, kernel.symbol).launch((BLOCKS, 1, 1), (THREADS, 1, 1), 0, [operands, totals])
    of_a_warp = _of_matrices(operands) if matrix else _of_words(operands)
    sums = totals.reshape(-1, WARP).astype(np.int64).sum(1)
    np.testing.assert_array_equal(sums.astype(np.int32), np.full(len(sums), of_a_warp, np.int64).astype(np.int32))
    products = REPETITIONS * INDEPENDENT * (16 * 8 * 32 if matrix else WARP * 4)
    assert kernel.facts["macs"] == products * BLOCKS * THREADS // WARP


def _of_words(operands: np.ndarray) -> int:
    unsigned, signed = operands.view(np.uint8).reshape(-1, 4), operands.view(np.int8).reshape(-1, 4)
    rows = sum(np.roll(unsigned.astype(np.int64), -place, 0) for place in range(INDEPENDENT))
    return REPETITIONS * int((rows * signed).sum())


def _of_matrices(operands: np.ndarray) -> int:
    """Fragments of `mma.m16n8k32` by the PTX ISA: register r of lane t has four neighbours of a row."""
    unsigned, signed = operands.view(np.uint8).reshape(-1, 4), operands.view(np.int8).reshape(-1, 4)
    rows, columns = np.zeros((16, 32), np.int64), np.zeros((32, 8), np.int64)
    for lane in range(WARP):
        group, place = lane // 4, 4 * (lane % 4)
        for word in range(4):
            row, at = group + 8 * (word % 2), place + 16 * (word // 2)
            rows[row, at : at + 4] = unsigned[(lane + word) % OPERANDS]
        for word in range(2):
            columns[place + 16 * word : place + 16 * word + 4, group] = signed[(lane + word) % OPERANDS]
    return REPETITIONS * INDEPENDENT * int((rows @ columns).sum())
