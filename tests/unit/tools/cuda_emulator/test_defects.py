"""Tests of kernels with one defect each, which the emulation reports, and of correct ones, which it accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.cuda_emulator.errors import DeviceFault
from tools.cuda_emulator.small_kernels import run

Words = NDArray[np.uint32]


def _launch(body: str, threads: int = 64, blocks: int = 1, shared_bytes: int = 0, seed: int = 0) -> Words:
    """Runs `body` and returns `out`. Both `in`, which is 0, 1, …, and `out`, which is zeros, have 256 words."""
    out: Words = np.zeros(256, np.uint32)
    operands = (np.arange(256, dtype=np.uint32), out)
    parameters = "const uint32_t* in, uint32_t* out"
    prelude = "const uint32_t thread = threadIdx.x; const uint32_t at = blockIdx.x * blockDim.x + thread;\n"
    run(parameters, prelude + body, *operands, threads=threads, blocks=blocks, shared_bytes=shared_bytes, seed=seed)
    return out


SHARED = "__shared__ uint32_t tile[64]; tile[thread] = in[thread]; "
REVERSED = "out[thread] = tile[63 - thread];"

DEFECTS: dict[str, tuple[str, str]] = {
    "no barrier between a write and another's read": (
        SHARED + REVERSED,
        "(reads byte .* wrote|writes byte .* read) .* a race",
    ),
    "no barrier between a read and another's write": (
        SHARED + "__syncthreads();" + REVERSED + "tile[thread] = 0;",
        "(reads byte .* wrote|writes byte .* read) .* a race",
    ),
    "two threads write one byte": (
        "__shared__ uint8_t tile[32]; tile[thread / 2] = thread;",
        "writes byte 0 .* a race",
    ),
    "a warp's barrier orders no other warp": (SHARED + "__syncwarp();" + REVERSED, "a race"),
    "a warp's barrier of other lanes": (
        SHARED
        + "if (thread % 32 < 16) __syncwarp(0xffff); else __syncwarp(0xffff0000); out[thread] = tile[thread ^ 16];",
        "a race",
    ),
    "a shuffle is no barrier": (
        SHARED + "__shfl_sync(0xffffffff, thread, 0); out[thread] = tile[thread ^ 1];",
        "a race",
    ),
    "an atomic update and a plain read": (
        "__shared__ uint32_t sum; if (thread == 0) sum = 0; __syncthreads(); atomicAdd(&sum, 1u); out[thread] = sum;",
        "a race",
    ),
    "threads of a block share global memory": ("out[thread] = thread; out[64 + thread] = out[thread ^ 1];", "a race"),
    "blocks write different values": ("out[thread] = blockIdx.x;", "wrote another value.* a race"),
    "a block reads what another writes": ("out[at] = at; if (at < 64) out[128 + at] = out[at + 64];", "a race"),
    "some threads do not come to a barrier": (
        "if (thread < 60) __syncthreads(); out[at] = 1;",
        r"deadlock: thread \(0, 0, 0\) and 59 more waits at a barrier .* thread \(60, 0, 0\) and 3 more exited",
    ),
    "threads at different barriers": (
        "if (thread < 32) {\n __syncthreads();\n } else {\n __syncthreads();\n } out[at] = 1;",
        "barrier divergence",
    ),
    "half a warp multiplies matrices": (
        "uint32_t x[4] = {}; if (thread % 32 < 16) asm volatile("
        '"mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0,%1},{%2},{%3},{%0,%1};"'
        ': "+r"(x[0]), "+r"(x[1]) : "r"(x[2]), "r"(x[3])); out[at] = x[0];',
        "deadlock: .* mma; .* exited",
    ),
    "a mask without the caller": ("__syncwarp(1);", "which does not contain its lane"),
    "a mask of lanes that do not come": ("if (thread % 32 < 8) __syncwarp(0xffff);", "deadlock"),
    "a shuffle from outside the mask": (
        "if (thread % 32 < 8) out[at] = __shfl_sync(0xff, thread, 9);",
        "shuffles from lane 9, which is not in the mask",
    ),
    "past the end of an operand": ("out[at] = in[at + 250];", "reads 4 bytes at 0 bytes past the end of operand 0"),
    "far from any operand": ("out[at] = in[at + (1 << 26)];", "reads 4 bytes at an address far from every operand"),
    "before an operand": ("out[(int)at - 1] = 0;", "writes 4 bytes at 4 bytes before operand 1"),
    "an operand of constants": ("((uint32_t*)in)[at] = 0;", "writes operand 0, a pointer to const"),
    "past the end of a shared array": (
        "__shared__ uint32_t tile[64]; uint32_t* p = tile; p[thread + in[1]] = 1;",
        "too small object",
    ),
    "an index past a shared array": ("__shared__ uint32_t tile[64]; tile[thread + in[1]] = 1;", "past an array's end"),
    "past the end of dynamic shared memory": (
        "extern __shared__ uint8_t memory[]; memory[thread] = 1; out[at] = memory[thread];",
        "dynamic shared memory|a shared variable",
    ),
    "an index past an array of a thread": (
        "uint32_t own[4]; for (uint32_t i = 0; i <= in[4]; ++i) own[i] = in[i]; out[at] = own[in[2]];",
        "past an array's end",
    ),
    "16 bytes from an address that is no multiple": ("out[at] = ((const uint4*)(in + 2))[thread].x;", "misaligned"),
    "ldmatrix of a row that is not a multiple of 16": (
        "__shared__ uint4 tile[64]; uint32_t x; const uint32_t row = __cvta_generic_to_shared(tile + thread % 32) + 8;"
        'asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(row)); out[at] = x;',
        "ldmatrix of a row at .* not a multiple of 16",
    ),
    "ldmatrix reads what another warp writes": (
        "__shared__ uint4 tile[64]; tile[thread] = make_uint4(0, 0, 0, 0); __syncwarp(); uint32_t x;"
        "const uint32_t row = __cvta_generic_to_shared(tile + (thread ^ 32));"
        'asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(row)); out[at] = x;',
        "reads byte .* a race",
    ),
    "an overflowing sum": ("out[at] = (int32_t)in[at] + 0x7fffffff;", "overflow of an addition"),
    "a shift by the width": ("out[at] = in[at] << (in[32] + thread);", "a shift by more than the width"),
    "a real value past the integers": ("out[at] = (int32_t)(in[255] * 1e30f);", "past the integer's range"),
    "null": ("uint32_t* p = in[0] ? out : nullptr; *p = 1;", "a null pointer"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str) -> None:
    body, words = DEFECTS[defect]
    dynamic = 60 if "dynamic" in defect else 0
    with pytest.raises(DeviceFault, match=words):
        _launch(
            body, blocks=2 if "block" in defect.split()[:2] or defect.startswith("blocks") else 1, shared_bytes=dynamic
        )


def test_a_fault_names_the_line_and_leaves_the_operands() -> None:
    out = np.full(64, 7, np.uint32)
    with pytest.raises(DeviceFault, match=r"thread \(5, 0, 0\) of block \(0, 0, 0\) .*\(kernel at kernel.cu:\d+"):
        run("uint32_t* out", "out[threadIdx.x] = 1;\nif (threadIdx.x == 5) out[64] = 1;", out, threads=64)
    np.testing.assert_array_equal(out, 7)


RIGHT: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "a barrier orders": (SHARED + "__syncthreads();" + REVERSED, lambda at: 63 - at),
    "a warp's barrier orders its lanes": (SHARED + "__syncwarp(); out[thread] = tile[thread ^ 1];", lambda at: at ^ 1),
    "a part of a warp": (
        SHARED + "if (thread % 32 < 16) { __syncwarp(0xffff); out[thread] = tile[thread ^ 1]; } else out[thread] = 0;",
        lambda at: np.where(at % 32 < 16, at ^ 1, 0),
    ),
    "a reused tile": (
        "__shared__ uint32_t tile[64]; uint32_t sum = 0; for (int step = 0; step < 4; ++step) {"
        "tile[thread] = in[thread] + step; __syncthreads(); sum += tile[63 - thread]; __syncthreads(); }"
        "out[thread] = sum;",
        lambda at: 4 * (63 - at) + 6,
    ),
    "atomic updates": (
        "__shared__ uint32_t sum; if (thread == 0) sum = 0; __syncthreads(); atomicAdd(&sum, in[thread]);"
        "__syncthreads(); out[thread] = sum;",
        lambda at: np.full(64, 63 * 32),
    ),
    "half of the warps meet at a barrier of their own": (
        '__shared__ uint32_t tile[64]; tile[thread] = thread; asm volatile("bar.sync %0, 32;" :: "r"(1 + thread / 32));'
        "out[thread] = tile[thread ^ 31];",
        lambda at: at ^ 31,
    ),
    "a vote of the block": ("out[thread] = __syncthreads_count(thread % 4 == 0);", lambda at: np.full(64, 16)),
    "dynamic shared memory": (
        "extern __shared__ __align__(128) uint8_t memory[]; memory[thread] = thread; __syncthreads();"
        "out[thread] = memory[63 - thread] + (((size_t)memory) % 128);",
        lambda at: 63 - at,
    ),
}


@pytest.mark.parametrize("kernel", RIGHT)
@pytest.mark.parametrize("seed", [0, 1, 2, 99])
def test_a_correct_kernel_has_no_fault_in_any_order(kernel: str, seed: int) -> None:
    body, expected = RIGHT[kernel]
    out = _launch(body, shared_bytes=64, seed=seed)
    np.testing.assert_array_equal(out[:64], expected(np.arange(64)))


def test_blocks_may_write_the_same_value_twice() -> None:
    assert (_launch("out[thread] = 5;", blocks=3)[:64] == 5).all()


def test_the_seed_changes_the_order() -> None:
    """Each thread takes the next number, so the result is the order of the threads. No kernel may depend on it."""
    orders = [tuple(_launch("out[at] = atomicAdd(&out[255], 1u);", seed=seed)[:64]) for seed in (0, 1, 2)]
    assert orders[0] == tuple(range(64))
    assert len(set(orders)) == 3
