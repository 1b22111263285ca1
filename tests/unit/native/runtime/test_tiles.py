"""Checks that the runtime requests AMX tiles from the kernel before it runs code that uses them."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.compiler.sandbox import bpf
from service.compiler.sandbox.kernel import prctl, syscall
from service.core.digest import canonical_json
from service.core.errors import Unsupported
from service.core.target import detect_host
from service.runtime.octet_library import NativeModel
from tests.support.small_artifact import config_of

pytestmark = pytest.mark.skipif("amx_tile" not in detect_host().features, reason="NOT TESTED: this CPU has no AMX")

_GET_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1022, 18, 158
_CONFIG = config_of([("input", 0), ("output", 0)], [("twice", [0, 1])]) | {"requires": ["amx_tile", "amx_int8"]}
_NO_NEW_PRIVS, _SET_MODE_FILTER = 38, 1


def is_permitted() -> bool:
    permitted = ctypes.c_uint64()
    assert ctypes.CDLL(None).syscall(_ARCH_PRCTL, _GET_PERMISSION, ctypes.byref(permitted)) == 0
    return bool(permitted.value >> _TILE_DATA & 1)


def loaded_is_permitted(code: Path, constants: Path) -> None:
    assert not is_permitted()
    NativeModel.load_files(canonical_json(_CONFIG), code, constants).close()
    assert is_permitted()


def refusal_is_worded(code: Path, constants: Path) -> None:
    refused = bpf.give(bpf.RET_ERRNO | 1)
    program = [*bpf.load(bpf.SYSCALL), *bpf.when_equal(_ARCH_PRCTL, refused), *bpf.give(bpf.RET_ALLOW)]
    packed = b"".join(instruction.pack() for instruction in program)
    instructions = ctypes.create_string_buffer(packed, len(packed))
    prctl(_NO_NEW_PRIVS, 1)
    description = struct.pack("@HP", len(program), ctypes.addressof(instructions))
    syscall("seccomp", _SET_MODE_FILTER, 0, ctypes.create_string_buffer(description, len(description)))
    with pytest.raises(
        Unsupported, match=r"the kernel does not permit this process to use AMX.*Operation not permitted"
    ):
        NativeModel.load_files(canonical_json(_CONFIG), code, constants)


@pytest.mark.parametrize("check", [loaded_is_permitted, refusal_is_worded], ids=lambda check: check.__name__)
def test_tiles_are_requested_in_a_fresh_process(
    check: Callable[[Path, Path], None], code: Path, constants: Path
) -> None:
    script = f"from pathlib import Path; from {__name__} import {check.__name__} as check; "
    script += f"check(Path({str(code)!r}), Path({str(constants)!r}))"
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": str(Path.cwd())})
