"""Tests of wgmma: products of operands in shared memory, in the PTX ISA's layout, and its fences and waits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.cuda_emulator.errors import DeviceFault
from tools.cuda_emulator.small_kernels import run

COLUMNS, THREADS = 16, 128
PRODUCT = f"""
__device__ uint64_t operand(const void* rows) {{
  const uint64_t address = (uint64_t)__cvta_generic_to_shared(rows);
  return address >> 4 | 1ull << 16 | 16ull << 32 | 3ull << 62;
}}
__device__ void multiply(int32_t* sums, uint64_t a, uint64_t b) {{
  asm volatile("{{.reg .pred p; setp.ne.u32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n{COLUMNS}k32.s32.u8.s8 "
               "{{%0, %1, %2, %3, %4, %5, %6, %7}}, %8, %9, p;}}"
               : {", ".join(f'"+r"(sums[{each}])' for each in range(COLUMNS // 2))}
               : "l"(a), "l"(b));
}}
"""
PUBLISH = 'asm volatile("fence.proxy.async.shared::cta;");'
COMMIT, WAIT = 'asm volatile("wgmma.commit_group.sync.aligned;");', 'asm volatile("wgmma.wait_group.sync.aligned 0;");'


def product(
    a: NDArray[np.uint8], b: NDArray[np.int8], publish: str = PUBLISH, before_wait: str = "", after_wait: str = ""
) -> NDArray[np.int32]:
    """Returns `a bᵀ + 5`, `[64, COLUMNS]`, of `a` `[64, 32]` and `b` `[COLUMNS, 32]`, computed by wgmma."""
    rows = np.concatenate([a, b.view(np.uint8)])
    chunks = rows.reshape(len(rows), 2, 16)
    turned = np.arange(len(rows)) // 4 % 2 == 1  # 32-byte swizzle: bit 4 of an address is inverted if bit 7 is set
    laid_out = np.where(turned[:, None, None], chunks[:, ::-1], chunks).reshape(-1)
    sums = np.full((THREADS, COLUMNS // 2), 5, np.int32)
    body = f"""
      extern __shared__ __align__(256) uint8_t rows[];
      for (int at = threadIdx.x; at < {len(laid_out)}; at += {THREADS}) rows[at] = in[at];
      {publish}
      __syncthreads();
      int32_t* own = out + {COLUMNS // 2} * threadIdx.x;
      int32_t sums[{COLUMNS // 2}];
      for (int each = 0; each < {COLUMNS // 2}; ++each) sums[each] = own[each];
      multiply(sums, operand(rows), operand(rows + 64 * 32));
      {COMMIT} {before_wait} {WAIT} {after_wait}
      for (int each = 0; each < {COLUMNS // 2}; ++each) own[each] = sums[each];"""
    operands = "const uint8_t* in, int32_t* out"
    run(operands, body, laid_out, sums, before=PRODUCT, threads=THREADS, shared_bytes=len(laid_out))
    d = np.empty((64, COLUMNS), np.int32)
    for thread in range(THREADS):
        for element in range(COLUMNS // 2):
            row = thread // 32 * 16 + thread % 32 // 4 + 8 * (element // 2 % 2)
            d[row, element // 4 * 8 + thread % 4 * 2 + element % 2] = sums[thread, element]
    return d


def operands() -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    random = np.random.default_rng(7)
    return (
        random.integers(0, 256, (64, 32)).astype(np.uint8),
        random.integers(-128, 128, (COLUMNS, 32)).astype(np.int8),
    )


def test_wgmma_adds_the_product_of_matrices() -> None:
    a, b = operands()
    np.testing.assert_array_equal(product(a, b), a.astype(np.int32) @ b.T.astype(np.int32) + 5)


def test_an_operand_without_a_proxy_fence_is_a_fault() -> None:
    with pytest.raises(DeviceFault, match=r"without a fence\.proxy\.async after the write"):
        product(*operands(), publish="")


def test_an_operand_that_is_overwritten_before_the_wait() -> None:
    overwritten = "__syncthreads(); if (threadIdx.x == 5) rows[70] ^= 1;"
    with pytest.raises(DeviceFault, match=r"overwritten|a race"):
        product(*operands(), before_wait=overwritten)
    product(*operands(), after_wait=overwritten)
