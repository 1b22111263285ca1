"""Builds of PyTorch models are compared with PyTorch, in the environment that `benchmarks.setup_peers` creates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.home import default_home
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.core.artifacts.artifact import Report
from service.core.builds.numerics import FBGEMM, PT2E, QNNPACK, TORCH_X86
from service.core.builds.options import with_shapes
from service.core.digest import digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target
from tests.support.build_caches import share_caches
from tests.support.compiled import Unreported
from tests.support.torchscript import FOLDER

PYTHON = default_home().python("torch")


def numerics_of(file: str, numerics: str, folder: Path, python: Path) -> Any:
    source, layout, scratch = FOLDER / file, OciLayout(folder / "store"), folder / "scratch"
    scratch.mkdir()
    share_caches(scratch)
    with np.load(source.with_suffix(".npz")) as arrays:
        shape = next(arrays[name].shape for name in arrays.files if name.startswith(("input.", "x")))
    options = with_shapes({"": shape} if source.suffix == ".pt" else {})
    request = CompileRequest(source, digest_of_file(source), parse_target("host"), numerics, options)
    settings = Settings(data_dir=scratch, torch_python=python)
    artifact = compile_model(request, layout, scratch, Unreported(), settings)
    return json.loads(layout.attached(artifact, Report.NUMERICS) or b"{}")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="PyTorch is missing: run python -m benchmarks.setup_peers")
@pytest.mark.parametrize(
    ("file", "numerics"),
    [
        ("residual.pt", FBGEMM),
        ("residual.pt", QNNPACK),
        ("functions.pt", TORCH_X86),
        ("dynamic.pt", FBGEMM),
        ("recurrent_traced.pt", FBGEMM),
        ("recurrent_traced.pt", QNNPACK),
        ("residual_xnnpack.pt2", PT2E),
    ],
)
def test_pytorch_gives_the_same_values(file: str, numerics: str, tmp_path: Path) -> None:
    report = numerics_of(file, numerics, tmp_path, PYTHON)
    witness = report["witnesses"][1]
    assert (witness["name"], witness["ran"], witness["refused"]) == ("PyTorch", True, [])
    assert witness["version"].startswith("2.13.")
    assert report["outcome"] in ("equal", "documented"), report["summary"]


def test_an_environment_without_pytorch_is_named(tmp_path: Path) -> None:
    report = numerics_of("residual.pt", FBGEMM, tmp_path, tmp_path / "bin" / "python")
    assert report["outcome"] == "own_only"
    assert f"PyTorch is not installed in the environment of {tmp_path}/bin/python" in report["summary"]
