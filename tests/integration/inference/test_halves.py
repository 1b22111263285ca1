"""A compiled model with inputs and outputs of float16 and float64, used over HTTP (JSON and binary) and gRPC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.api.grpc import inference_pb2 as pb
from service.cache import OciLayout
from service.core.builds.build import BuildState
from service.workers.inference.artifacts import StoredArtifacts
from tests.support.compiled import compile_file
from tests.support.data_plane import DataPlane, as_binary, as_json, channel, client_of
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name


@pytest.mark.parametrize(
    ("dtype", "datatype"), [("float16", "FP16"), pytest.param("float64", "FP64", marks=pytest.mark.slow)]
)
async def test_every_protocol_gives_the_values_of_onnx_runtime(dtype: str, datatype: str, tmp_path: Path) -> None:
    b = OnnxBuilder()
    b.node("Mul", [b.input("x", dtype, [1, 4]), b.constant(np.array([1, 2, 3, 4], dtype))], ["y"])
    b.output("y", dtype)
    source = tmp_path / "model.onnx"
    source.write_bytes(b.build())
    x = np.array([[0.1, -65504 / 4, 6e-8, 1.5]], dtype)
    (expected,) = Reference(source, optimized=True)([x])
    layout, tables = OciLayout(tmp_path / "store"), Tables()
    artifact = compile_file(source, layout, tmp_path / "scratch", numerics="onnxruntime")
    tables.build("m", tables.push("m"), BuildState.SUCCEEDED, artifact=artifact)
    plane = DataPlane(tables, artifacts=StoredArtifacts(layout), reads=[layout.root])
    async with client_of(plane) as client:
        by_json = (await client.post("/v2/models/m/infer", json=as_json(x))).json()["outputs"][0]
        body, headers = as_binary({"x": x}, {"parameters": {"binary_data_output": True}})
        binary = await client.post("/v2/models/m/infer", content=body, headers=headers)
    assert by_json["datatype"] == datatype
    np.testing.assert_array_equal(np.array(by_json["data"], dtype), expected.reshape(-1))
    assert binary.content.endswith(expected.tobytes())
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[x.tobytes()])
    message.inputs.add(name="x", datatype=datatype, shape=x.shape)
    async with channel(DataPlane(tables, artifacts=StoredArtifacts(layout), reads=[layout.root])) as opened:
        answer = await opened.unary_unary(f"/{NAME}/ModelInfer")(message.SerializeToString())
    assert pb.ModelInferResponse.FromString(answer).raw_output_contents == [expected.tobytes()]
