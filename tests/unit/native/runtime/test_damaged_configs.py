"""Checks that randomly damaged configs do not harm the runtime (tests/fuzz/native/runtime.cc)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from service.core.digest import canonical_json
from tests.support.native import built_program
from tests.support.small_artifact import COUNTING, SIMPLE, changed

_ON_A_GPU = changed(SIMPLE, launches=[[1, 1, 1, 32, 1, 1, 0]] * 2) | {"requires": ["sm_80"]}  # does not exist here


def _fuzz(program: Path, code: Path, constants: Path, count: int) -> int:
    """Returns how many of `count` damaged configs were loaded. Fails on a crash, or if a sanitizer reports an error."""
    file = constants.with_name("config")
    loaded = 0
    for seed, config in enumerate((SIMPLE, COUNTING, _ON_A_GPU)):
        file.write_bytes(canonical_json(config))
        arguments: list[str | Path] = [program, file, code, constants, str(count), str(seed)]
        run = subprocess.run(arguments, capture_output=True, text=True, timeout=250)
        assert (run.returncode, run.stderr) == (0, "")
        loaded += int(run.stdout)
    return loaded


def test_damaged_configs_do_no_harm(code: Path, constants: Path) -> None:
    assert 0 < _fuzz(built_program("runtime_fuzz"), code, constants, 2000) < 4000


@pytest.mark.slow
def test_sanitizers_find_nothing_in_damaged_configs(code: Path, constants: Path) -> None:
    assert _fuzz(built_program("runtime_fuzz", "address,undefined"), code, constants, 20_000) > 0
