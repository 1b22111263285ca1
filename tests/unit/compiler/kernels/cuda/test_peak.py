"""The loops that measure a GPU's peak consist of products only, and compute as many products as they report."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.nvrtc import cubin
from service.compiler.kernels.cuda.peak import OPERANDS, THREADS, peak
from service.compiler.kernels.cuda.tiles import Unit
from service.compiler.kernels.kernel import DeviceFunction
from tests.support.cuda.device_code import SPILLS, DeviceCode, count
from tests.support.cuda.machine_code import needs_nvrtc
from tools.cuda_emulator.emulated_kernel import EmulatedKernel

BLOCKS, REPETITIONS, WARP = 2, 3, 32
INDEPENDENT = {Unit.DOT: 8, Unit.MATRIX: 8, Unit.GROUP: 2}


@needs_nvrtc
@pytest.mark.parametrize(
    ("capability", "unit"),
    [(each, unit) for each in ("sm_75", "sm_80", "sm_90") for unit in Unit if unit.macs(GPUS[each])],
)
def test_the_loop_is_products(capability: str, unit: Unit) -> None:
    kernel = peak(unit, 1, 1024)
    assert isinstance(kernel.function, DeviceFunction)
    made = DeviceCode(cubin(kernel.function.source, capability, kernel.symbol))
    opcode = {Unit.DOT: "IDP.4A", Unit.MATRIX: "IMMA", Unit.GROUP: "IGMMA"}[unit]
    loop = made.hottest(opcode)
    products = count(loop, opcode)
    assert products > 0
    assert products % (INDEPENDENT[unit] * (4 if unit is Unit.MATRIX and capability == "sm_75" else 1)) == 0
    assert len(loop) <= products + max(8, products // 8)  # the other instructions count iterations and jump
    assert count(made.instructions, *SPILLS) == 0


@pytest.mark.parametrize("unit", Unit)
def test_the_loop_adds_as_many_products_as_it_reports(unit: Unit) -> None:
    kernel = peak(unit, BLOCKS, REPETITIONS)
    assert isinstance(kernel.function, DeviceFunction)
    operands = np.random.default_rng(3).integers(0, 1 << 32, OPERANDS, np.uint32)
    totals = np.zeros(BLOCKS * THREADS, np.int32)
    emulated = EmulatedKernel(kernel.function.source, kernel.symbol, architecture="sm_90")
    emulated.launch((BLOCKS, 1, 1), (THREADS, 1, 1), kernel.function.launch.shared_bytes, [operands, totals])
    of_a_warp = {Unit.DOT: _of_words, Unit.MATRIX: _of_matrices, Unit.GROUP: _of_groups}[unit](operands)
    sums = totals.reshape(-1, WARP).astype(np.int64).sum(1)
    np.testing.assert_array_equal(sums.astype(np.int32), np.full(len(sums), of_a_warp, np.int64).astype(np.int32))
    products = {Unit.DOT: WARP * 4, Unit.MATRIX: 16 * 8 * 32, Unit.GROUP: 64 * 128 * 32 // 4}[unit]
    assert kernel.facts["macs"] == REPETITIONS * INDEPENDENT[unit] * products * BLOCKS * THREADS // WARP


def _of_words(operands: np.ndarray) -> int:
    unsigned, signed = operands.view(np.uint8).reshape(-1, 4), operands.view(np.int8).reshape(-1, 4)
    rows = sum(np.roll(unsigned.astype(np.int64), -index, 0) for index in range(INDEPENDENT[Unit.DOT]))
    return REPETITIONS * int((rows * signed).sum())


def _of_matrices(operands: np.ndarray) -> int:
    """Computes the sum of a product of `mma.m16n8k32`, from fragments as in the PTX ISA.

    A register of a lane contains four neighboring elements of a row or column.
    """
    unsigned, signed = operands.view(np.uint8).reshape(-1, 4), operands.view(np.int8).reshape(-1, 4)
    rows, columns = np.zeros((16, 32), np.int64), np.zeros((32, 8), np.int64)
    for lane in range(WARP):
        group, position = lane // 4, 4 * (lane % 4)
        for word in range(4):
            row, at = group + 8 * (word % 2), position + 16 * (word // 2)
            rows[row, at : at + 4] = unsigned[(lane + word) % OPERANDS]
        for word in range(2):
            columns[position + 16 * word : position + 16 * word + 4, group] = signed[(lane + word) % OPERANDS]
    return REPETITIONS * INDEPENDENT[Unit.MATRIX] * int((rows @ columns).sum())


def _of_groups(operands: np.ndarray) -> int:
    """Computes the sum of a warp's part of a product of `wgmma`.

    The operands repeat every 128 bytes, which are four rows of 32 bytes. In every other repetition, the two chunks of
    16 bytes of a row are swapped, because shared memory is swizzled.
    """
    chunks = np.tile(operands.view(np.uint8), (64 + 128) // 4).reshape(-1, 2, 16)
    turned = np.arange(len(chunks)) // 4 % 2 == 1
    rows = np.where(turned[:, None, None], chunks[:, ::-1], chunks).reshape(-1, 32)
    unsigned, signed = rows[:64].astype(np.int64), rows[64:].view(np.int8).astype(np.int64)
    of_warps = (unsigned @ signed.T).reshape(4, 16, -1).sum((1, 2))
    assert len(set(of_warps)) == 1
    return REPETITIONS * INDEPENDENT[Unit.GROUP] * int(of_warps[0])
