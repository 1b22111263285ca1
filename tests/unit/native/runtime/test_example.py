"""Tests the C example, built with the installed C compiler."""

from __future__ import annotations

import shutil
import subprocess
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import service
from benchmarks.memory.footprint import resident_peak_bytes
from service.core.digest import canonical_json
from tests.support.small_artifact import BYTES, CONSTANTS, FUNCTIONS, LENGTH, SIMPLE, compiled, write_layout

_NATIVE = Path(service.__path__[0]) / "native"
_EXAMPLE = Path(__file__).parents[4] / "examples" / "predict.c"
_OPTIONS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=c11", f"-I{_NATIVE / 'runtime'}")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def predict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("example") / "predict"
    linked = ["-L", str(_NATIVE), "-loctet_runtime", f"-Wl,-rpath,{_NATIVE}"]
    subprocess.run(["cc", *_OPTIONS, str(_EXAMPLE), "-o", str(program), *linked], check=True)
    return program


def test_it_prints_the_best_class(predict: Path, tmp_path: Path, code: Path) -> None:
    config = deepcopy(SIMPLE)
    config["signature"]["outputs"][0] |= {"datatype": "INT8", "shape": [1, BYTES]}  # the example reads bytes
    write_layout(tmp_path / "model.octet", canonical_json(config), code, CONSTANTS.tobytes())
    given = np.zeros(LENGTH, np.int32)
    given[5] = 10
    given.tofile(tmp_path / "input")
    run = subprocess.run([predict, tmp_path / "model.octet", tmp_path / "input"], capture_output=True, text=True)
    best = 4 * 5
    assert run.stdout == f"class {best}: {0.5 * (2 * (10 + LENGTH + 5) + 3):.3f}\n", run.stderr


def test_errors_are_printed(predict: Path, tmp_path: Path) -> None:
    run = subprocess.run([predict, tmp_path / "nowhere", "input"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (1, f"{tmp_path / 'nowhere'}: No such file or directory\n")


def test_the_example_takes_two_megabytes(tmp_path: Path) -> None:
    """The two megabytes include the C library and the dynamic loader, which use one megabyte. Like most models, the
    model does not use libm.
    """
    without_libm = FUNCTIONS.partition("double erf")[0]
    (tmp_path / "code").mkdir()
    code = compiled(without_libm, folder=tmp_path / "code")
    write_layout(tmp_path / "model.octet", canonical_json(SIMPLE), code, CONSTANTS.tobytes())
    assert resident_peak_bytes(tmp_path / "model.octet", bytes(BYTES), tmp_path) <= 2 << 20


def test_the_header_is_plain_c99(tmp_path: Path) -> None:
    source = tmp_path / "header.c"
    source.write_text('#include "octet.h"\n')
    for standard in ("c99", "c11"):
        subprocess.run(["cc", *_OPTIONS, f"-std={standard}", "-fsyntax-only", str(source)], check=True)
