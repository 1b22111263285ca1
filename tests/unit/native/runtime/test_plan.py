"""Tests configs that are damaged or malicious."""

from __future__ import annotations

import resource
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from service.core.digest import canonical_json
from service.core.errors import CorruptBlob, OctetError, Unsupported
from service.runtime.octet_library import NativeModel
from tests.support.small_artifact import BYTES, COUNTING, SIMPLE, changed, config_of

_BUFFERS, _CALLS = SIMPLE["plan"]["buffers"], SIMPLE["plan"]["calls"]


def _buffer(index: int, *buffer: Any) -> dict[str, Any]:
    return changed(SIMPLE, buffers=[*_BUFFERS[:index], list(buffer), *_BUFFERS[index + 1 :]])


def _signature(role: str, **members: Any) -> dict[str, Any]:
    config = deepcopy(SIMPLE)
    config["signature"][role][0] |= members
    return config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (_buffer(0, "input", 1, BYTES), "buffer 0 refers to input 1, but the model has only 1"),
        (_buffer(0, "input", 0, BYTES - 4), "buffer 0 has 60 bytes, but input 0 has 64"),
        (_buffer(0, "input", -1, BYTES), "-1 is not between 0 and"),
        (_buffer(0, "heap", 0, BYTES), 'buffer 0 is in the unknown space "heap"'),
        (_buffer(0, "input", 0), "buffer 0 has 2 elements"),
        (_buffer(0, "input", 0, BYTES, 0), "buffer 0 has 4 elements"),
        (_buffer(0, "input", 0.0, BYTES), "0.0 is not a 64-bit integer"),
        (_buffer(0, "input", 0, 1 << 70), "is not a 64-bit integer"),
        (_buffer(0, "state", 0, BYTES), "buffer 0 refers to state 0, but the model has only 0"),
        (
            _buffer(1, "constant", 128, BYTES),
            r'buffer 1 has 64 bytes at offset 128, .* the 128 bytes of space "constant"',
        ),
        (_buffer(1, "constant", 60, BYTES), "buffer 1 has 64 bytes at offset 60, which is misaligned"),
        (_buffer(2, "arena", 256, BYTES), r'buffer 2 has 64 bytes at offset 256, .* the 256 bytes of space "arena"'),
        (_buffer(2, "arena", 0, 257), r'buffer 2 has 257 bytes at offset 0, .* the 256 bytes of space "arena"'),
        (_buffer(3, "arena", 0, BYTES), "no call of the plan writes output 0"),
        (changed(SIMPLE, arena_bytes=(1 << 40) + 1), "is not between 0 and"),
        (changed(SIMPLE, calls=[["add", [0, 1, 4]]]), "4 is not between 0 and 3"),
        (changed(SIMPLE, calls=[["add", [0, -1, 3]]]), "-1 is not between 0 and 3"),
        (changed(SIMPLE, calls=[["add", []]]), "call 0 has no operands"),
        (changed(SIMPLE, calls=[["add"]]), "call 0 has no operands"),
        (changed(SIMPLE, calls=[["a b", [3]]]), 'call 0 has the invalid symbol "a b"'),
        (changed(SIMPLE, calls=[["a" * 257, [3]]]), "has the invalid symbol"),
        (changed(SIMPLE, calls=[["add", [3, 0, 1]]]), r"call 0 \(add\) writes to a read-only buffer"),
        (changed(SIMPLE, calls=[["add", [3, 1, 0]]]), r"call 0 \(add\) writes to a read-only buffer"),
        (changed(SIMPLE, calls=[["add", [0] * 4097]]), "call 0 has more than 4096 operands"),
        (changed(SIMPLE, copies=[[0, 2]]), "the target of copy 0 is not an output"),
        (changed(SIMPLE, copies=[[0]]), "copy 0 has 1 elements"),
        (
            changed(SIMPLE, buffers=[*_BUFFERS, ["arena", 0, 32]], copies=[[4, 3]]),
            "the buffers of copy 0 have different sizes",
        ),
        (changed(SIMPLE, launches=[]), "the plan has 2 calls but 0 launches"),
        (changed(SIMPLE, launches=[[1] * 6]), "launch 0 has 6 elements"),
        (changed(SIMPLE, launches=[[1] * 8]), "launch 0 has 8 elements"),
        (changed(SIMPLE, launches=[[1 << 31, 1, 1, 1, 1, 1, 0]]), "2147483648 is not between 1 and 2147483647"),
        (changed(SIMPLE, launches=[[1, 65536, 1, 1, 1, 1, 0]]), "65536 is not between 1 and 65535"),
        (changed(SIMPLE, launches=[[1, 1, 65536, 1, 1, 1, 0]]), "65536 is not between 1 and 65535"),
        (changed(SIMPLE, launches=[[0, 1, 1, 1, 1, 1, 0]]), "0 is not between 1 and"),
        (changed(SIMPLE, launches=[[1, 1, 1, 1, 1, 65, 0]]), "65 is not between 1 and 64"),
        (changed(SIMPLE, launches=[[1, 1, 1, 32, 33, 1, 0]]), "launch 0 has blocks of 1056 threads"),
        (changed(SIMPLE, launches=[[1, 1, 1, 1, 1, 1, 232449]]), "232449 is not between 0 and 232448"),
        (changed(SIMPLE, launches=[[1, 1, 1, 1, 1, 1, -1]]), "-1 is not between 0 and"),
        (_buffer(0, "length", 0, 4), "buffer 0 is not a length, or the plan has no longest one"),
        (changed(SIMPLE, longest=0), "0 is not between 1 and"),
        (changed(SIMPLE, longest=1 << 31), "is not between 1 and 2147483647"),
        (changed(SIMPLE, longest=8, launches=[[1] * 6 + [0]] * 2), "the inputs of a model for GPUs have one length"),
        (changed(COUNTING, calls=[["add", [0, 1, 3]]], copies=[]), "no call of the plan writes next state 0"),
        (_signature("inputs", shape=[1 << 40, 1 << 40]), "a tensor is too large"),
        (_signature("inputs", shape=[1 << 39]), 'tensor "in0" is too large'),
        (_signature("inputs", shape=[-1, 16]), "-1 is not between 0 and"),
        (_signature("inputs", shape=[1] * 65), "more than 64 dimensions"),
        (_signature("inputs", name="a\0b"), "a string contains a NUL character"),
        (_signature("outputs", quantization={"scale": 10**400, "zero_point": 0}), "a number is too large for 64 bits"),
        ({name: SIMPLE[name] for name in SIMPLE if name != "plan"}, "lacks its versions"),
        ({name: SIMPLE[name] for name in SIMPLE if name != "signature"}, 'lacks the member "signature"'),
        ({name: SIMPLE[name] for name in SIMPLE if name != "requires"}, 'lacks the member "signature" or "requires"'),
    ],
)
def test_a_plan_stays_within_its_memory(config: Any, message: str, code: Path, constants: Path) -> None:
    with pytest.raises(CorruptBlob, match=message):
        NativeModel.load_files(canonical_json(config), code, constants)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SIMPLE | {"abi_version": 2}, "is of ABI 2 and plan 1, and this release runs ABI 1 and plan 1; compile the"),
        (changed(SIMPLE, version=2, buffers="of another form"), "is of ABI 1 and plan 2"),
        (changed(SIMPLE, barriers=[]), 'plan has a member "barriers", which this release does not know; compile the'),
        (_signature("inputs", datatype="BF16"), 'datatype "BF16" of a tensor is not supported'),
    ],
)
def test_configs_of_other_releases_are_refused(config: Any, message: str, code: Path, constants: Path) -> None:
    with pytest.raises(Unsupported, match=message):
        NativeModel.load_files(canonical_json(config), code, constants)


_SIMPLE = canonical_json(SIMPLE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "byte 0: it ends too early"),
        (_SIMPLE[:-1], "it ends too early"),
        (_SIMPLE + b"x", "unexpected text after the end"),
        (b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", "nested more than 32 levels deep"),
        (_SIMPLE.replace(b'"abi_version":1,', b'"abi_version":1,"abi_version":1,'), "are not sorted"),
        (_SIMPLE.replace(b'"name":"in0"', b'"name":"\xff"'), "it is not UTF-8"),
        (_SIMPLE.replace(b'"name":"in0"', b'"name":"\\ud800"'), "half of a surrogate pair"),
        (_SIMPLE.replace(b'"name":"in0"', b'"name":"\n"'), "a control character in a string"),
        (_SIMPLE.replace(b'"numerics":"xnnpack"', b'"numerics":nil'), "expected a value"),
        (_SIMPLE.replace(b"[1,16]", b"[01,16]"), "a number with a leading zero"),
    ],
)
def test_a_config_is_canonical_json(text: bytes, message: str, code: Path, constants: Path) -> None:
    with pytest.raises(CorruptBlob, match=message):
        NativeModel.load_files(text, code, constants)


def test_an_arena_larger_than_memory_is_refused(code: Path, constants: Path) -> None:
    model = NativeModel.load_files(canonical_json(changed(SIMPLE, arena_bytes=1 << 40)), code, constants)
    assert model.arena_bytes == 1 << 40
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 39, before[1]))  # a system may overcommit memory
    try:
        with pytest.raises(MemoryError, match="1099511627776 bytes for an instance: Cannot allocate memory"):
            model.instance()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_plan_may_have_many_calls(code: Path, constants: Path) -> None:
    config = config_of([("input", 0), ("output", 0)], [("twice", [0, 1])] * 20_000)
    assert len(NativeModel.load_files(canonical_json(config), code, constants).calls) == 20_000


def test_more_calls_than_a_plan_may_have_are_refused(code: Path, constants: Path) -> None:
    config = config_of([("input", 0), ("output", 0)], [("f", [1])] * ((1 << 18) + 1))
    with pytest.raises(OctetError, match="the plan has more than 262144 calls"):
        NativeModel.load_files(canonical_json(config), code, constants)
