"""NVRTC compiles convolutions to the expected instructions, without spills.

They need no more registers than the cost model assumes.
"""

from __future__ import annotations

import pytest

from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.nvrtc import cubin
from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.tiles import STEP_BYTES, GpuTile, Unit, promising, ranked
from service.compiler.kernels.kernel import DeviceFunction
from tests.support.cuda.device_code import SPILLS, DeviceCode, count
from tests.support.cuda.layers import SquareConvolution

LAYER = SquareConvolution(images=8)
# One compute capability of each generation. The other capabilities of a generation differ only in limits.
CAPABILITIES = ("sm_75", "sm_80", "sm_90")
REGISTERS = 65536  # the registers of a multiprocessor; each thread gets a multiple of eight


def tiles(capability: str) -> list[GpuTile]:
    """Returns the fastest tile of each size according to the cost model."""
    best: dict[tuple[int, ...], GpuTile] = {}
    for unit in promising(GPUS[capability]):
        for tile in ranked(GPUS[capability], LAYER.layer, 72, [unit]):
            best.setdefault((unit, *tile.numbers[:4]), tile)
    return list(best.values())


def code(capability: str, tile: GpuTile) -> DeviceCode:
    kernel = conv(LAYER.layer, LAYER.weights, 1, LAYER.bias, LAYER.epilogue, tile)
    assert isinstance(kernel.function, DeviceFunction)
    return DeviceCode(cubin(kernel.function.source, capability, "octet_conv"))


def fits(made: DeviceCode, capability: str, tile: GpuTile) -> bool:
    """Returns true if a multiprocessor has enough registers for as many thread blocks as the cost model assumes."""
    taken = -(-made.usage.registers // 8) * 8 * tile.threads
    return taken * min(tile.resident, GPUS[capability].threads // tile.threads) <= REGISTERS


# `make test` compiles every third tile, and none of sm_75, because tests of sm_80 cover the same instructions.
ALL_TILES = [
    pytest.param(capability, tile, marks=[pytest.mark.slow] * (capability == "sm_75" or number % 3 > 0))
    for capability in CAPABILITIES
    for number, tile in enumerate(tiles(capability))
]


@pytest.mark.parametrize(
    ("capability", "tile"), ALL_TILES, ids=lambda each: "-".join(map(str, getattr(each, "numbers", [each])))
)
def test_convolution(capability: str, tile: GpuTile) -> None:
    made = code(capability, tile)
    loop = made.hottest("IGMMA", "IMMA", "IDP")
    assert loop in made.innermost
    assert count(made.instructions, *SPILLS) == 0
    assert made.usage.stack_bytes == 0
    assert fits(made, capability, tile)
    if tile.unit is Unit.GROUP:
        # An instruction computes 128 columns. There is one wait, after the instructions of the next step have started.
        assert count(loop, "IGMMA") == -(-tile.columns // 128) * tile.steps
        assert count(loop, "WARPGROUP.DEPBAR") == 1
    elif tile.unit is Unit.MATRIX:
        products = tile.own_rows // 16 * (tile.own_columns // 8) * tile.steps
        assert count(loop, "IMMA") == products * (4 if capability == "sm_75" else 1)
        # `ldmatrix` loads fragments, four registers at a time. No instruction shuffles or permutes them.
        assert count(loop, "LDSM") == (tile.own_rows + tile.own_columns) // 16 * tile.steps
        assert count(loop, "PRMT", "SHFL") == 0
    else:
        assert count(loop, "IDP.4A") == tile.own_rows * tile.own_columns * STEP_BYTES // 4 * tile.steps
    copied = (tile.rows + tile.columns) * STEP_BYTES * tile.together // 16
    copies = count(loop, "LDGSTS" if GPUS[capability].copies_ahead else "STS")
    assert copies == -(-copied // tile.threads)


def test_dot_products_of_older_gpus() -> None:
    """The disassembler does not support the instructions of older GPUs, so only resources are checked."""
    for tile in tiles("sm_61"):
        made = code("sm_61", tile)
        assert made.usage.stack_bytes == 0
        assert fits(made, "sm_61", tile)
