"""A model for several input lengths is pushed to a server and used over both protocols."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from service import runtime
from service.core.models.arrays import Array
from tests.support.data_plane import as_binary, entry, unpacked
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parents[2] / "fixtures" / "lengths" / "bert.static.onnx"
SHAPES = "input_ids=1x[4,8];attention_mask=1x[4,8]"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as served:
        push(served, "bert", SHAPES)
        yield served
        assert served.stop() == 0


def push(served: Served, name: str, shapes: str) -> None:
    """Pushes the model, and waits until all of its input sizes are loaded."""
    params = {"name": name, "input_shape": shapes}
    response = served.client.put("/api/v1/models", params=params, content=SOURCE.read_bytes())
    assert response.status_code in (200, 202), response.text
    builds = served.client.get("/api/v1/builds", params={"model": name}).json()["builds"]
    assert len(builds) == (2 if "[" in shapes else 1)
    assert all(served.ended(build["id"])["state"] == "succeeded" for build in builds)
    if len(builds) > 1:
        eventually(lambda: shape_of(served, name) == [1, -1], WORK_TIMEOUT_S)


def shape_of(served: Served, name: str) -> list[int]:
    shape: list[int] = served.client.get(f"/v2/models/{name}").json()["inputs"][0]["shape"]
    return shape


def random_inputs(length: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"input_ids": rng.integers(3, 40, (1, length)), "attention_mask": np.ones((1, length), np.int64)}


def over_http(served: Served, name: str, tensors: dict[str, Array]) -> httpx.Response:
    body, headers = as_binary(tensors, {"parameters": {"binary_data_output": True}})
    return served.client.post(f"/v2/models/{name}/infer", content=body, headers=headers)


def over_grpc(served: Served, name: str, tensors: dict[str, Array]) -> Array:
    with triton.InferenceServerClient(served.grpc) as client:
        inputs = [triton.InferInput(each, list(array.shape), "INT64") for each, array in tensors.items()]
        for given, array in zip(inputs, tensors.values(), strict=True):
            given.set_data_from_numpy(array)
        answer: Array = client.infer(name, inputs).as_numpy("output")
        return answer


def test_the_metadata_marks_the_dynamic_dimension(served: Served) -> None:
    document = served.client.get("/v2/models/bert").json()
    assert [each["shape"] for each in document["inputs"]] == [[1, -1], [1, -1]]
    assert document["outputs"][0]["shape"] == [1, -1, 16]
    with triton.InferenceServerClient(served.grpc) as client:
        assert list(client.get_model_metadata("bert").outputs[0].shape) == [1, -1, 16]


@pytest.mark.parametrize("length", [1, 3, 4, 6, 8])
def test_both_protocols_give_the_output_of_a_build_for_the_length(served: Served, length: int) -> None:
    name = f"bert-{length}"
    push(served, name, f"input_ids=1,{length};attention_mask=1,{length}")
    tensors = random_inputs(length, length)
    (alone,) = unpacked(over_http(served, name, tensors))[1].values()
    for _ in range(3):  # after the first request, the server may have cached its header
        response = over_http(served, "bert", tensors)
        assert response.status_code == 200, response.text
        document, arrays = unpacked(response)
        assert document["outputs"][0]["shape"] == [1, length, 16]
        np.testing.assert_array_equal(arrays["output"], alone)
        np.testing.assert_array_equal(over_grpc(served, "bert", tensors), alone)


def test_json_gives_the_same_output(served: Served) -> None:
    tensors = random_inputs(5)
    document = {"inputs": [entry(name, array, data=array.reshape(-1).tolist()) for name, array in tensors.items()]}
    (output,) = served.client.post("/v2/models/bert/infer", json=document).json()["outputs"]
    (binary,) = unpacked(over_http(served, "bert", tensors))[1].values()
    assert output["shape"] == [1, 5, 16]
    np.testing.assert_array_equal(np.array(output["data"], np.float32), binary.reshape(-1))


def test_a_length_beyond_the_buckets_is_rejected_with_their_list(served: Served) -> None:
    response = over_http(served, "bert", random_inputs(9))
    assert response.status_code == 400, response.text
    assert "built for [1, 4], [1, 8], and shorter ones are filled up" in response.text
    with pytest.raises(InferenceServerException, match=r"built for \[1, 4\], \[1, 8\]"):
        over_grpc(served, "bert", random_inputs(9))


def test_inputs_with_different_lengths_are_rejected(served: Served) -> None:
    response = over_http(served, "bert", {**random_inputs(5), "attention_mask": np.ones((1, 4), np.int64)})
    assert response.status_code == 400, response.text
    assert "do not go together" in response.text


def test_buckets_are_not_built_for_batches(served: Served) -> None:
    params = {"name": "both", "input_shape": SHAPES, "batch": "1,8"}
    response = served.client.put("/api/v1/models", params=params, content=SOURCE.read_bytes())
    assert response.status_code == 400, response.text
    assert served.client.get("/api/v1/models/both").status_code == 404  # nothing was stored


def test_outputs_equal_those_of_the_runtime(served: Served, tmp_path: Path) -> None:
    builds = served.client.get("/api/v1/builds", params={"model": "bert"}).json()["builds"]
    artifact = next(each["artifact"] for each in builds if each["options"]["input_shapes"]["input_ids"] == [1, 8])
    archive = tmp_path / "artifact.tar"
    archive.write_bytes(served.client.get(f"/api/v1/artifacts/{artifact}/content").content)

    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "folder", filter="data")
    tensors = random_inputs(8)
    (answer,) = unpacked(over_http(served, "bert", tensors))[1].values()
    np.testing.assert_array_equal(runtime.load(tmp_path / "folder")(*tensors.values()), answer)
