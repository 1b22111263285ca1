"""Tests of cp.async: the bytes that it copies, and that they are not there before the wait."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.cuda_emulator.errors import DeviceFault, UnknownDeviceCode
from tools.cuda_emulator.small_kernels import run

COPY = """
template <int size> __device__ void copy(void* to, const void* from, uint32_t valid = size) {
  const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :: "r"(shared), "l"(from), "n"(size), "r"(valid) : "memory");
}
"""
COMMIT = 'asm volatile("cp.async.commit_group;");'
WAIT = 'asm volatile("cp.async.wait_group %0;" :: "n"({}));'


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("valid", [0, 3, 4])
def test_copies_and_fills_with_zeros(size: int, valid: int) -> None:
    data = np.random.default_rng(size).integers(1, 256, (32, size)).astype(np.uint8)
    out = np.zeros_like(data)
    body = f"""
      __shared__ __align__(16) uint8_t tile[32][{size}];
      copy<{size}>(tile[threadIdx.x], in + {size} * threadIdx.x, {valid});
      {COMMIT} {WAIT.format(0)}
      __syncthreads();
      for (int byte = 0; byte < {size}; ++byte) out[{size} * threadIdx.x + byte] = tile[threadIdx.x][byte];"""
    run("const uint8_t* in, uint8_t* out", body, data, out, before=COPY)
    np.testing.assert_array_equal(out, np.where(np.arange(size) < valid, data, 0))


def _staged(after: str, sanitize: bool) -> NDArray[np.uint32]:
    """Copies two groups of one word per lane, runs `after`, and returns the words `[group, lane]` as read."""
    data, out = np.arange(1, 65, dtype=np.uint32).reshape(2, 32), np.zeros((2, 32), np.uint32)
    body = f"""
      __shared__ uint32_t tile[2][32];
      for (int group = 0; group < 2; ++group) {{
        copy<4>(&tile[group][threadIdx.x], in + 32 * group + threadIdx.x);
        {COMMIT}
      }}
      {after}
      for (int group = 0; group < 2; ++group) out[32 * group + threadIdx.x] = tile[group][threadIdx.x];"""
    run("const uint32_t* in, uint32_t* out", body, data, out, before=COPY, sanitize=sanitize)
    return out


def test_waits_for_all_but_the_newest_groups() -> None:
    out = _staged(WAIT.format(1), sanitize=False)
    np.testing.assert_array_equal(out[0], np.arange(1, 33))
    assert not np.isin(out[1], np.arange(33, 65)).any()
    np.testing.assert_array_equal(
        _staged('asm volatile("cp.async.wait_all;");', sanitize=True).ravel(), np.arange(1, 65)
    )


def test_a_read_before_the_wait_is_a_fault() -> None:
    with pytest.raises(DeviceFault, match=r"while a cp\.async to it is in flight"):
        _staged(WAIT.format(1), sanitize=True)


def test_another_threads_copy_needs_a_barrier_too() -> None:
    body = f"""
      __shared__ uint32_t tile[32];
      copy<4>(&tile[threadIdx.x], in + threadIdx.x);
      {COMMIT} {WAIT.format(0)}
      out[threadIdx.x] = tile[threadIdx.x ^ 1];"""
    data = np.arange(32, dtype=np.uint32)
    with pytest.raises(DeviceFault, match="a race"):
        run("const uint32_t* in, uint32_t* out", body, data, data.copy(), before=COPY)


@pytest.mark.parametrize(("to", "start"), [("1", 0), ("0", 1)])
def test_both_ends_are_aligned_to_the_size(to: str, start: int) -> None:
    body = f"__shared__ uint32_t tile[64]; copy<16>(tile + {to}, in + {start});"
    data = np.arange(64, dtype=np.uint32)
    with pytest.raises(DeviceFault, match="not aligned to its size"):
        run("const uint32_t* in", body, data, threads=1, before=COPY)


def test_l2_only_copies_have_16_bytes() -> None:
    body = 'asm volatile("cp.async.cg.shared.global [%0], [%1], 8;" :: "r"(0), "l"(in));'
    with pytest.raises(UnknownDeviceCode, match="no such size"):
        run("const uint32_t* in", body, np.zeros(4, np.uint32))
