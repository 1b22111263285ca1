"""Tests of the reader of NVRTC's machine code, on kernels whose loops and resources are known."""

from __future__ import annotations

import pytest

from service.compiler.kernels.cuda.nvrtc import cubin
from tests.support.cuda.device_code import SPILLS, DeviceCode, count

SUM = """
extern "C" __global__ void __launch_bounds__(64) OCTET_KERNEL(const int* a, const int* b, int* out) {
  __shared__ int tile[64];
  int sum = 0;
#pragma unroll 1
  for (int outer = 0; outer < a[0]; ++outer) {
#pragma unroll 4
    for (int i = 0; i < 64; ++i) sum = __dp4a(a[i], b[i * outer], sum);
  }
  tile[threadIdx.x] = sum;
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) OCTET_KERNEL(const int* a, int* out) {
  int own[192];
#pragma unroll
  for (int i = 0; i < 192; ++i) own[i] = a[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 192; ++i) out[own[(i * 77) % 192] & 1023] += own[i];
}
"""


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_reads_loops_and_usage(architecture: str) -> None:
    code = DeviceCode(cubin(SUM, architecture, "octet_sum"))
    loop = code.hottest("IDP")
    assert 4 <= count(loop, "IDP.4A") <= 64
    assert len(loop) < max(map(len, code.loops))  # the inner loop
    assert loop in code.innermost
    assert count(code.instructions, "IDP") == count(loop, "IDP")
    assert count(code.instructions, *SPILLS) == 0
    assert code.usage.shared_bytes == 256 + (1024 if architecture == "sm_90" else 0)  # reserved by the system
    assert code.usage.stack_bytes == 0
    assert 8 <= code.usage.registers <= 255


def test_spills_are_detected() -> None:
    code = DeviceCode(cubin(SPILLING, "sm_80", "octet_spilling"))
    assert count(code.instructions, *SPILLS) > 0
    assert code.usage.stack_bytes > 0
    assert code.usage.registers <= 64  # the limit with 1024 threads: 65536 / 1024


def test_an_opcode_is_not_the_beginning_of_another() -> None:
    code = DeviceCode(cubin(SUM, "sm_80", "octet_sum"))
    assert count(code.instructions, "ID") == 0


def test_usage_of_older_gpus() -> None:
    assert DeviceCode(cubin(SUM, "sm_61", "octet_sum")).usage.shared_bytes == 256
