"""Builds of MXNet models are compared with MXNet, in the environment that `benchmarks.setup_peers` creates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.home import default_home
from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.builds.numerics import MXNET_ONEDNN
from tests.support.compiled import compile_file
from tests.support.mxnet_models import NAMES, packed

PYTHON = default_home().python("mxnet")
DOCUMENTED = ("sg_float", "sg_softmax")  # these compute real values, of which the last bits may differ


def numerics_of(name: str, folder: Path) -> Any:
    source, layout = folder / "model.zip", OciLayout(folder / "store")
    source.write_bytes(packed(name))
    artifact = compile_file(source, layout, folder / "scratch", numerics=MXNET_ONEDNN)
    return json.loads(layout.attached(artifact, Report.NUMERICS) or b"{}")


def test_without_mxnet_the_report_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTET_MXNET_PYTHON", raising=False)
    report = numerics_of("contrib_chain", tmp_path)
    assert report["outcome"] == "own_only"
    assert "MXNet is not installed here (OCTET_MXNET_PYTHON is not set)" in report["summary"]


def test_an_environment_without_mxnet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTET_MXNET_PYTHON", str(tmp_path / "bin" / "python"))
    report = numerics_of("contrib_chain", tmp_path)
    assert f"MXNet is not installed in the environment of {tmp_path}/bin/python" in report["summary"]


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="MXNet is missing: run python -m benchmarks.setup_peers")
@pytest.mark.parametrize("name", NAMES)
def test_mxnet_gives_the_same_values(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTET_MXNET_PYTHON", str(PYTHON))
    report = numerics_of(name, tmp_path)
    witness = report["witnesses"][1]
    assert (witness["name"], witness["version"], witness["refused"]) == ("MXNet", "1.9.1", [])
    assert report["outcome"] == ("documented" if name in DOCUMENTED else "equal"), report["summary"]
