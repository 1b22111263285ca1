"""Tests of the fragments of mma and ldmatrix, with products of matrices in the layouts of the PTX ISA.

The functions here compute the position of one element at a time, as in the documentation. The emulation gathers whole
registers. The functions and the emulation must both agree with NumPy's product.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.cuda_emulator.small_kernels import run

SHAPES = {(8, 16): (1, 1, 2), (16, 16): (2, 1, 4), (16, 32): (4, 2, 4)}  # registers of A, of B, of C and D


def row_of_a(lane: int, element: int, rows: int) -> int:
    group = lane >> 2
    if rows == 8:
        return group
    return group if element < 4 or 8 <= element < 12 else group + 8


def column_of_a(lane: int, element: int, rows: int) -> int:
    column = (lane % 4) * 4 + (element & 3)
    return column if rows == 8 or element < 8 else column + 16


def row_of_b(lane: int, element: int) -> int:
    return (lane % 4) * 4 + (element & 3) + (0 if element < 4 else 16)


def row_of_c(lane: int, element: int) -> int:
    return (lane >> 2) + (0 if element < 2 else 8)


def column_of_c(lane: int, element: int) -> int:
    return (lane % 4) * 2 + (element & 1)


def mma(rows: int, depth: int, signs: tuple[str, str], a: NDArray, b: NDArray, c: NDArray) -> NDArray:  # type: ignore[type-arg]
    """Returns `a b + c`, computed by mma: one warp reads its operands and writes the result as `[lane, register]`."""
    of_a, of_b, of_c = SHAPES[rows, depth]
    fragment_a = np.empty((32, 4 * of_a), np.uint8)
    fragment_b = np.empty((32, 4 * of_b), np.uint8)
    fragment_c = np.empty((32, of_c), np.int32)
    for lane in range(32):
        for element in range(4 * of_a):
            fragment_a[lane, element] = a[row_of_a(lane, element, rows), column_of_a(lane, element, rows)]
        for element in range(4 * of_b):
            fragment_b[lane, element] = b[row_of_b(lane, element), lane >> 2]
        for element in range(of_c):
            fragment_c[lane, element] = c[row_of_c(lane, element), column_of_c(lane, element)]
    names = iter(f"%{number}" for number in range(99))
    lists = ["{" + ",".join(next(names) for _ in range(count)) + "}" for count in (of_c, of_a, of_b, of_c)]
    operands = [
        f'"r"({name}[{each}])' for name, count in zip("abc", (of_a, of_b, of_c), strict=True) for each in range(count)
    ]
    body = f"""
      a += {of_a} * threadIdx.x; b += {of_b} * threadIdx.x; c += {of_c} * threadIdx.x; d += {of_c} * threadIdx.x;
      asm volatile("mma.sync.aligned.m{rows}n8k{depth}.row.col.s32.{signs[0]}8.{signs[1]}8.s32 "
                   "{", ".join(lists)};\\n"
                   : {", ".join(f'"=r"(d[{each}])' for each in range(of_c))} : {", ".join(operands)});"""
    result = np.zeros_like(fragment_c)
    parameters = "const uint32_t* a, const uint32_t* b, const int32_t* c, int32_t* d"
    run(parameters, body, fragment_a.view(np.uint32), fragment_b.view(np.uint32), fragment_c, result)
    d = np.empty((rows, 8), np.int32)
    for lane in range(32):
        for element in range(of_c):
            d[row_of_c(lane, element), column_of_c(lane, element)] = result[lane, element]
    return d


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("signs", [("u", "s"), ("s", "u"), ("u", "u"), ("s", "s")], ids="".join)
def test_mma_is_the_product_of_matrices(shape: tuple[int, int], signs: tuple[str, str]) -> None:
    rows, depth = shape
    random = np.random.default_rng(rows * depth)
    types = [np.uint8 if sign == "u" else np.int8 for sign in signs]
    a, b = (
        random.integers(0, 256, size).astype(kind)
        for size, kind in zip([(rows, depth), (depth, 8)], types, strict=True)
    )
    c = random.integers(-(2**31), 2**31, (rows, 8)).astype(np.int32)
    product = a.astype(np.int64) @ b.astype(np.int64) + c
    np.testing.assert_array_equal(
        mma(rows, depth, signs, a.view(np.uint8), b.view(np.uint8), c), product.astype(np.int32)
    )


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_two_neighbours(count: int, transposed: bool) -> None:
    matrices = np.random.default_rng(count).integers(0, 2**16, (count, 8, 8)).astype(np.uint16)
    registers = np.zeros((32, count), np.uint32)
    outputs = ", ".join(f'"=r"(out[{count} * threadIdx.x + {each}])' for each in range(count))
    names = ",".join(f"%{each}" for each in range(count))
    body = f"""
      extern __shared__ uint4 rows[];
      if (threadIdx.x < {8 * count}) rows[threadIdx.x ^ 1] = in[threadIdx.x];  // in another order than their lanes
      __syncthreads();
      const uint32_t row = __cvta_generic_to_shared(rows + (threadIdx.x % {8 * count} ^ 1));
      asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{".trans" * transposed}.shared.b16 {{{names}}}, [%{count}];"
                   : {outputs} : "r"(row) : "memory");"""
    run("const uint4* in, uint32_t* out", body, matrices.view(np.uint32), registers, shared_bytes=128 * count)
    expected = matrices.transpose(0, 2, 1) if transposed else matrices
    for lane in range(32):
        for each in range(count):
            pair = expected[each, lane // 4, 2 * (lane % 4) :][:2]
            assert registers[lane, each] == pair[0] | np.uint32(pair[1]) << 16


def test_ldmatrix_and_mma_share_their_layout() -> None:
    """Rows whose bytes are contiguous in k, loaded by ldmatrix, are fragments of mma. The GEMM kernels need this."""
    random = np.random.default_rng(3)
    a = random.integers(0, 256, (16, 32)).astype(np.uint8)
    b = random.integers(-128, 128, (8, 32)).astype(np.int8)  # column by column
    c = np.zeros((16, 8), np.int32)
    body = """
      __shared__ __align__(16) uint8_t tile_a[16][32];
      __shared__ __align__(16) int8_t tile_b[8][32];
      const int lane = threadIdx.x;
      *(uint4*)&tile_a[lane / 2][16 * (lane % 2)] = ((const uint4*)a)[lane];
      if (lane < 16) *(uint4*)&tile_b[lane / 2][16 * (lane % 2)] = ((const uint4*)b)[lane];
      __syncthreads();
      uint32_t ra[4], rb[2];
      int32_t d[4] = {0, 0, 0, 0};
      const uint32_t row = __cvta_generic_to_shared(&tile_a[lane % 16][16 * (lane / 16)]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(row));
      const uint32_t column = __cvta_generic_to_shared(&tile_b[lane % 8][16 * (lane / 8 % 2)]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(column));
      asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                   "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                   : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
      for (int each = 0; each < 4; ++each) c[(lane / 4 + 8 * (each / 2)) * 8 + 2 * (lane % 4) + each % 2] = d[each];"""
    run("const uint8_t* a, const int8_t* b, int32_t* c", body, a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32).T)
