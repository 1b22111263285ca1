"""Builds of OpenVINO's models are compared with OpenVINO, in the environment that `benchmarks.setup_peers` creates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.home import default_home
from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.builds.numerics import OPENVINO
from tests.support.compiled import compile_file
from tests.support.openvino_models import packed

PYTHON = default_home().python("openvino")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="OpenVINO is missing: run python -m benchmarks.setup_peers")
@pytest.mark.parametrize(("name", "outcome"), [("padded_mixed", "equal"), ("residual_mixed", "documented")])
def test_openvino_gives_the_same_values(
    name: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTET_OPENVINO_PYTHON", str(PYTHON))
    source, layout = tmp_path / "model.zip", OciLayout(tmp_path / "store")
    source.write_bytes(packed(name))
    artifact = compile_file(source, layout, tmp_path / "scratch", numerics=OPENVINO)
    report = json.loads(layout.attached(artifact, Report.NUMERICS) or b"{}")
    witness = report["witnesses"][1]
    assert (witness["name"], witness["version"], witness["refused"]) == ("OpenVINO", "2026.4.1", [])
    assert report["outcome"] == outcome, report["summary"]
