"""Compares CUDA intrinsics and PTX instructions with their documentation, written in NumPy and Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.cuda_emulator.errors import UnknownDeviceCode
from tools.cuda_emulator.small_kernels import run

Words = NDArray[np.uint32]
COUNT = 512
RANDOM = np.random.default_rng(7)
WORDS = RANDOM.integers(0, 2**32, (3, COUNT), np.uint32)
WORDS[:, :8] = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x01020304], np.uint32)
WORDS[1, :8] = np.roll(WORDS[1, :8], 3)
FLOATS = np.concatenate(
    [
        np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -128.5, 254.5, 255.5, 3e9, -3e9, 5e9], np.float32),
        np.array([np.nan, np.inf, -np.inf, -0.0, 2147483520.0, 1e-40], np.float32),
    ]
)
FLOATS = np.concatenate([FLOATS, RANDOM.uniform(-400, 400, COUNT - len(FLOATS)).astype(np.float32)])


def computed(expression: str, *, asm: str = "", before: str = "") -> Words:
    """Returns the result for each of COUNT inputs `a`, `b`, `c` (words) and `x` (a float).

    It is `expression` of these names, or `%0` of the instruction `asm`, which reads them as `%1` to `%4`.
    """
    statement = f'asm("{asm}" : "=r"(result) : "r"(a), "r"(b), "r"(c), "f"(x));' if asm else f"result = {expression};"
    body = f"""
      const uint32_t at = threadIdx.x, a = in[at], b = in[{COUNT} + at], c = in[{2 * COUNT} + at];
      const float x = reals[at];
      uint32_t result;
      {statement}
      out[at] = result;"""
    out: Words = np.zeros(COUNT, np.uint32)
    run("const uint32_t* in, const float* reals, uint32_t* out", body, WORDS, FLOATS, out, threads=COUNT, before=before)
    return out


def _bytes(words: Words, signed: bool) -> NDArray[np.int64]:
    return words.view(np.int8 if signed else np.uint8).reshape(-1, 4).astype(np.int64)


def _dot(left: bool, right: bool) -> Words:
    sums = (_bytes(WORDS[0], left) * _bytes(WORDS[1], right)).sum(axis=1) + WORDS[2].astype(np.int64)
    words: Words = sums.astype(np.uint64).astype(np.uint32)
    return words


def _permuted(word: int, other: int, selector: int, *, replicates: bool) -> int:
    octets = word.to_bytes(4, "little") + other.to_bytes(4, "little")
    chosen = []
    for nibble in (selector >> shift & 15 for shift in (0, 4, 8, 12)):
        octet = octets[nibble & 7]
        chosen.append((0xFF if octet & 0x80 else 0) if replicates and nibble & 8 else octet)
    return int.from_bytes(bytes(chosen), "little")


def _saturated(values: NDArray[Any], low: int, high: int) -> Words:
    """Returns the values rounded to the nearest integer, ties to even, and clipped to [low, high]; 0 for NaN."""
    near = np.rint(values.astype(np.float64))
    return np.where(np.isnan(near), 0, np.clip(near, low, high)).astype(np.int64).astype(np.uint32)


def _each(function: Callable[[int, int, int], int]) -> Words:
    return np.array([function(*map(int, words)) & 0xFFFFFFFF for words in WORDS.T], np.uint32)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _packed(a: int, b: int, c: int) -> int:
    low, high = (min(max(_signed(value), -128), 127) & 0xFF for value in (b, a))
    return low | high << 8 | c << 16


CASES: dict[str, tuple[dict[str, str], Callable[[], Words]]] = {
    "__dp4a, signed": ({"expression": "__dp4a((int)a, (int)b, (int)c)"}, lambda: _dot(True, True)),
    "__dp4a, unsigned": ({"expression": "__dp4a(a, b, c)"}, lambda: _dot(False, False)),
    "dp4a.u32.s32": ({"asm": "dp4a.u32.s32 %0, %1, %2, %3;"}, lambda: _dot(False, True)),
    "dp4a.s32.u32": ({"asm": "dp4a.s32.u32 %0, %1, %2, %3;"}, lambda: _dot(True, False)),
    "__byte_perm": (
        {"expression": "__byte_perm(a, b, c)"},
        lambda: _each(lambda a, b, c: _permuted(a, b, c, replicates=False)),
    ),
    "prmt": ({"asm": "prmt.b32 %0, %1, %2, %3;"}, lambda: _each(lambda a, b, c: _permuted(a, b, c, replicates=True))),
    "__funnelshift_l": (
        {"expression": "__funnelshift_l(a, b, c)"},
        lambda: _each(lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    ),
    "__funnelshift_rc": (
        {"expression": "__funnelshift_rc(a, b, c % 40)"},
        lambda: _each(lambda a, b, c: (b << 32 | a) >> min(c % 40, 32)),
    ),
    "shf.r.wrap": ({"asm": "shf.r.wrap.b32 %0, %1, %2, %3;"}, lambda: _each(lambda a, b, c: (b << 32 | a) >> (c & 31))),
    "__umulhi": ({"expression": "__umulhi(a, b)"}, lambda: _each(lambda a, b, c: a * b >> 32)),
    "__mulhi": ({"expression": "__mulhi(a, b)"}, lambda: _each(lambda a, b, c: _signed(a) * _signed(b) >> 32)),
    "mul.wide": (
        {"asm": "{ .reg .b64 wide; mul.wide.s32 wide, %1, %2; shr.u64 wide, wide, 20; cvt.u32.u64 %0, wide; }"},
        lambda: _each(lambda a, b, c: (_signed(a) * _signed(b) & 0xFFFFFFFFFFFFFFFF) >> 20),
    ),
    "__popc, __clz and __brev": (
        {"expression": "__popc(a) + 100 * __clz(b) + (__brev(c) & 0xffff0000)"},
        lambda: _each(
            lambda a, b, c: a.bit_count() + 100 * (32 - b.bit_length()) + (int(f"{c:032b}"[::-1], 2) & 0xFFFF0000)
        ),
    ),
    "__float2int_rn": ({"expression": "__float2int_rn(x)"}, lambda: _saturated(FLOATS, -(2**31), 2**31 - 1)),
    "cvt.rni.s8": ({"asm": "cvt.rni.sat.s8.f32 %0, %4;"}, lambda: _saturated(FLOATS, -128, 127)),
    "cvt.rni.u8": ({"asm": "cvt.rni.u8.f32 %0, %4;"}, lambda: _saturated(FLOATS, 0, 255)),
    "cvt.rzi.u32": (
        {"asm": "cvt.rzi.u32.f32 %0, %4;"},
        lambda: _saturated(np.trunc(FLOATS), 0, 2**32 - 1),
    ),
    "cvt.pack": ({"asm": "cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;"}, lambda: _each(_packed)),
    "a predicated instruction": (
        {
            "asm": "{ .reg .pred p; .reg .b32 t; setp.lt.s32 p, %1, %2; mov.b32 t, %1; "
            "@!p mov.b32 t, %2; add.u32 %0, t, 1; }"
        },
        lambda: _each(lambda a, b, c: min(_signed(a), _signed(b)) + 1),
    ),
    "a fused multiply-add": (
        {"expression": "__float_as_uint(fmaf(x, __uint_as_float(0x3fc00001u), 0.1f))"},
        lambda: (
            (FLOATS.astype(np.longdouble) * np.uint32(0x3FC00001).view(np.float32) + np.float32(0.1))
            .astype(np.float32)
            .view(np.uint32)
        ),
    ),
    "products and sums that are not fused": (
        {"expression": "__float_as_uint(x * __uint_as_float(0x3fc00001u) + 0.1f)"},
        lambda: (FLOATS * np.uint32(0x3FC00001).view(np.float32) + np.float32(0.1)).view(np.uint32),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_computes_what_is_documented(name: str) -> None:
    arguments, expected = CASES[name]
    with np.errstate(all="ignore"):
        right = expected()
    nan = np.isnan(FLOATS) & ("fused" in name)  # the bits of a NaN are not specified
    np.testing.assert_array_equal(computed(arguments.get("expression", ""), **_without(arguments))[~nan], right[~nan])


def _without(arguments: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in arguments.items() if name != "expression"}


def _lanes(kind: str, other: int, width: int) -> list[int]:
    """Returns, for each lane, the lane from which it gets its value."""
    found = []
    for lane in range(32):
        first = lane - lane % width
        last = first + width - 1
        chosen = {"": first + other % width, "_up": lane - other, "_down": lane + other, "_xor": lane ^ other}[kind]
        found.append(chosen if kind == "" or (chosen <= last and (kind != "_up" or chosen >= first)) else lane)
    return found


@pytest.mark.parametrize("kind", ["", "_up", "_down", "_xor"])
def test_shuffles(kind: str) -> None:
    cases = [(other, width) for other in (0, 1, 5, 17, 31) for width in (32, 8, 2)]
    lines = [
        f"out[{32 * row} + threadIdx.x] = __shfl{kind}_sync(0xffffffff, 100 + threadIdx.x, {other}, {width});"
        for row, (other, width) in enumerate(cases)
    ]
    out = np.zeros((len(cases), 32), np.uint32)
    run("uint32_t* out", "\n".join(lines), out)
    for row, case in zip(out, cases, strict=True):
        np.testing.assert_array_equal(row, [100 + lane for lane in _lanes(kind, *case)], str(case))


def test_votes_and_reductions_of_a_part_of_a_warp() -> None:
    body = """
      const uint32_t lane = threadIdx.x, mask = lane < 20 ? 0xfffff : 0xfff00000;
      out[lane] = __ballot_sync(mask, lane % 3 == 0);
      out[32 + lane] = __all_sync(mask, lane < 20) * 2 + __any_sync(mask, lane == 25);
      out[64 + lane] = __reduce_add_sync(mask, lane);
      out[96 + lane] = __reduce_min_sync(mask, 7 - (int32_t)lane);"""
    out = np.zeros((4, 32), np.uint32)
    run("uint32_t* out", body, out)
    lanes, low = np.arange(32), np.arange(32) < 20
    thirds = sum(1 << int(lane) for lane in lanes[::3])
    np.testing.assert_array_equal(out[0], np.where(low, thirds & 0xFFFFF, thirds & 0xFFF00000))
    np.testing.assert_array_equal(out[1], np.where(low, 2, 1))
    np.testing.assert_array_equal(out[2], np.where(low, 190, 496 - 190))
    np.testing.assert_array_equal(out[3].astype(np.int32), np.where(low, 7 - 19, 7 - 31))


def test_loads_and_stores_of_vectors() -> None:
    data, out = RANDOM.integers(0, 2**32, (32, 4), np.uint32), np.zeros((32, 4), np.uint32)
    body = """
      __shared__ uint4 tile[32];
      uint32_t w, x, y, z;
      asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4 + 16];"
                   : "=r"(w), "=r"(x), "=r"(y), "=r"(z) : "l"((const char*)(in + threadIdx.x) - 16));
      const uint32_t at = __cvta_generic_to_shared(tile + threadIdx.x);
      asm volatile("st.shared.v4.b32 [%0], {%4, %3, %2, %1};" :: "r"(at), "r"(w), "r"(x), "r"(y), "r"(z) : "memory");
      asm volatile("bar.sync 0;");
      out[threadIdx.x] = tile[31 - threadIdx.x];"""
    run("const uint4* in, uint4* out", body, data, out)
    np.testing.assert_array_equal(out, data[::-1, ::-1])


UNKNOWN = {
    "an instruction": ('asm("vadd4.u32.u32.u32 %0, %0, %0, %0;" : "+r"(a));', "vadd4.u32.u32.u32"),
    "a shape": (
        'asm("mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32 {%0,%0},{%0},{%0},{%0,%0};" : "+r"(a));',
        "mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32",
    ),
    "a fragment of another size": (
        'asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%0},{%0},{%0},{%0,%0};" : "+r"(a));',
        "registers instead of 4",
    ),
    "a constraint": ('asm("mov.b32 %0, 1;" : "=q"(a));', 'constraint "q"'),
    "an operand": ('asm("mov.b32 %0, %7;" : "=r"(a));', "uses %7"),
    "a function": ("a = __nanosleep(1);", "__nanosleep"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_the_error_names_an_unsupported_feature(what: str) -> None:
    body, words = UNKNOWN[what]
    with pytest.raises(UnknownDeviceCode, match=words):
        run("uint32_t* out", f"uint32_t a = 0; {body} out[0] = a;", np.zeros(1, np.uint32), threads=1)


def test_code_for_other_capabilities_is_ignored() -> None:
    body = '#if __CUDA_ARCH__ >= 900\n asm("wgmma.fence.sync.aligned;");\n#endif\n out[0] = __CUDA_ARCH__;'
    out = np.zeros(1, np.uint32)
    run("uint32_t* out", body, out, threads=1)
    assert out[0] == 800
