"""Checks that randomly damaged configs do not harm the runtime."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.core.digest import canonical_json
from tests.support.native import PRODUCTS, build
from tests.support.small_artifact import COUNTING, SIMPLE, changed

_ROOT = Path(__file__).parents[4]
_RUNTIME = _ROOT / "service/native/runtime"
_HARNESS = _ROOT / "tests/fuzz/native/runtime.cc"

_ON_A_CARD = changed(SIMPLE, launches=[[1, 1, 1, 32, 1, 1, 0]] * 2) | {"requires": ["sm_80"]}  # does not exist here

_LIBRARY = _RUNTIME.parent / "liboctet_runtime.so"

# The pinned compiler has no address sanitizer, but its C++ library can check every index of a view.
_UNDEFINED = (
    *(*PRODUCTS, "-fsanitize=undefined", "-fno-sanitize-recover=undefined"),
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_DEBUG",
)
_ADDRESS = ("g++", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS")


def _fuzz(
    code: Path,
    constants: Path,
    count: int,
    sources: Sequence[Path] = (),
    linked: Sequence[str] = (),
    compiler: tuple[str, ...] = PRODUCTS,
) -> int:
    """Returns how many of `count` damaged configs were loaded. Fails on a crash, or if a sanitizer reports an error."""
    folder = constants.parent
    options = ["-std=c++17", "-O1", "-g", f"-I{_RUNTIME}"]
    program = build([*sources, _HARNESS], folder / "fuzz", options, ["-pthread", *linked], compiler)
    loaded = 0
    for seed, config in enumerate((SIMPLE, COUNTING, _ON_A_CARD)):
        (folder / "config").write_bytes(canonical_json(config))
        arguments: list[str | Path] = [program, folder / "config", code, constants, str(count), str(seed)]
        run = subprocess.run(arguments, capture_output=True, text=True, timeout=250)
        assert (run.returncode, run.stderr) == (0, "")
        loaded += int(run.stdout)
    return loaded


def test_damaged_configs_break_nothing(code: Path, constants: Path) -> None:
    library = [str(_LIBRARY), f"-Wl,-rpath,{_LIBRARY.parent}"]
    assert 0 < _fuzz(code, constants, 2000, linked=library) < 4000


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [_UNDEFINED, _ADDRESS], ids=["undefined", "address"])
def test_damaged_configs_break_nothing_that_sanitizers_see(
    compiler: tuple[str, ...], code: Path, constants: Path
) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip("the sanitizers' runtime comes with a system's compiler")
    assert _fuzz(code, constants, 20_000, sorted(_RUNTIME.rglob("*.cc")), compiler=compiler) > 0
