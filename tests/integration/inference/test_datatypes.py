"""Compiled models with unsigned 16-bit inputs or outputs, used over the network. Cases and outputs are those of ONNX's
own test suite.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.cache import OciLayout
from service.core.builds.build import BuildState
from service.workers.inference.artifacts import StoredArtifacts
from tests.support.compiled import compile_file
from tests.support.data_plane import as_json, connect
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

CASES = np.load(Path(__file__).parents[2] / "fixtures" / "onnx" / "node_cases.npz")


@pytest.mark.parametrize(
    ("case", "datatypes"),
    [("test_quantizelinear_uint16", ("FP32", "UINT16")), ("test_dequantizelinear_uint16", ("UINT16", "FP32"))],
)
async def test_uint16_out_and_in(case: str, datatypes: tuple[str, str], tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(CASES[f"{case}.model"].tobytes())
    layout, tables = OciLayout(tmp_path / "store"), Tables()
    artifact = compile_file(source, layout, tmp_path / "scratch", numerics="onnxruntime")
    tables.build("case", tables.push("case"), BuildState.SUCCEEDED, artifact=artifact)
    async with connect(tables, artifacts=StoredArtifacts(layout), reads=[layout.root]) as client:
        (spec,) = (await client.get("/v2/models/case")).json()["inputs"]
        response = await client.post("/v2/models/case/infer", json=as_json(CASES[f"{case}.input0"], spec["name"]))
    (output,) = response.json()["outputs"]
    assert (spec["datatype"], output["datatype"]) == datatypes
    assert output["data"] == CASES[f"{case}.output0"].tolist()
