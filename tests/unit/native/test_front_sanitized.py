"""Mutated streams of requests do the native fronts no harm that a sanitizer would see."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import tvm_ffi.libinfo

_ROOT = Path(__file__).parents[3]
_SOURCES = _ROOT / "service/native/src"
_RUNTIME = _ROOT / "service/native/runtime"
_HARNESSES = _ROOT / "tests/fuzz/native"
_SECONDS = 5

# The locked compiler has no runtime for addresses, but checks every index of a view or a vector.
_COMPILERS = {
    "undefined": [
        *(sys.executable, "-m", "ziglang", "c++", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"),
        "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_DEBUG",
    ],
    "address": ["g++", "-fsanitize=address", "-D_GLIBCXX_ASSERTIONS"],
    "thread": ["g++", "-fsanitize=thread", "-Wno-tsan"],
}
_FENCED = "race:tvm::ffi::Object::DecRef"  # counts references with fences, of which that sanitizer knows nothing


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", _COMPILERS)
@pytest.mark.parametrize("harness", ["front", "grpc_front"])
def test_mutated_streams_do_no_harm(harness: str, sanitizer: str, tmp_path: Path) -> None:
    compiler = _COMPILERS[sanitizer]
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]}")
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent
    sources = [*units(tmp_path), *map(str, _RUNTIME.glob("*.cc"))]
    paths = ["-isystem", tvm_ffi.libinfo.find_include_path(), f"-I{_SOURCES}"]
    linked = [f"-L{library}", "-ltvm_ffi", f"-Wl,-rpath,{library}", "-pthread", "-o", str(tmp_path / "fuzz")]
    subprocess.run(
        [*compiler, "-std=c++17", "-O1", "-g", *paths, str(_HARNESSES / f"{harness}.cc"), *sources, *linked], check=True
    )
    (tmp_path / "suppressed").write_text(_FENCED)
    environment = os.environ | {"TSAN_OPTIONS": f"suppressions={tmp_path / 'suppressed'}"}
    subprocess.run([str(tmp_path / "fuzz"), str(_SECONDS), "1"], check=True, env=environment)


def units(folder: Path) -> Iterable[str]:
    """Two files that include all others, as in `setup.py`: reading the headers again for each source takes minutes."""
    sources = sorted(each for each in _SOURCES.rglob("*.cc") if "library" not in each.name)
    is_grpc = {each: str(each.relative_to(_SOURCES)).startswith(("grpc", "h2")) for each in sources}
    for name, wanted in (("grpc", True), ("rest", False)):
        unit = folder / f"{name}.cc"
        unit.write_text("".join(f'#include "{each}"\n' for each in sources if is_grpc[each] is wanted))
        yield str(unit)
