"""A model for several input lengths, which `octet compile` writes and the data plane serves alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from service.core.models.arrays import Array
from tests.support.data_plane import as_binary, entry, unpacked
from tests.support.plane_process import PlaneProcess, plane
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.slow  # the test compiles a transformer three times
SOURCE = Path(__file__).parents[2] / "fixtures" / "lengths" / "bert.dynamic.onnx"
SHAPES = "input_ids=1x[4,8];attention_mask=1x[4,8]"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("buckets")
    for name, shapes in (("bert", SHAPES), ("six", "input_ids=1,6;attention_mask=1,6")):
        command = [sys.executable, "-m", "service.cli", "compile", str(SOURCE), "--shape", shapes]
        subprocess.run([*command, "--output", str(folder / name)], check=True, capture_output=True)
    with plane([f"bert={folder / 'bert'}", f"six={folder / 'six'}"]) as process:
        yield process


def random_inputs(length: int) -> dict[str, Array]:
    rng = np.random.default_rng(length)
    return {"input_ids": rng.integers(3, 40, (1, length)), "attention_mask": np.ones((1, length), np.int64)}


def over_http(served: PlaneProcess, name: str, tensors: dict[str, Array]) -> httpx.Response:
    body, headers = as_binary(tensors, {"parameters": {"binary_data_output": True}})
    return httpx.post(f"{served.url}/v2/models/{name}/infer", content=body, headers=headers, timeout=GIVE_UP_S)


def over_grpc(served: PlaneProcess, name: str, tensors: dict[str, Array]) -> Array:
    with triton.InferenceServerClient(served.grpc) as client:
        inputs = [triton.InferInput(each, list(array.shape), "INT64") for each, array in tensors.items()]
        for given, array in zip(inputs, tensors.values(), strict=True):
            given.set_data_from_numpy(array)
        answer: Array = client.infer(name, inputs).as_numpy("output")
        return answer


def test_the_metadata_marks_the_dynamic_dimension(served: PlaneProcess) -> None:
    document = httpx.get(f"{served.url}/v2/models/bert").json()
    assert [each["shape"] for each in document["inputs"]] == [[1, -1], [1, -1]]
    with triton.InferenceServerClient(served.grpc) as client:
        assert list(client.get_model_metadata("bert").outputs[0].shape) == [1, -1, 16]


def test_a_shorter_input_gives_the_same_output_as_a_build_for_its_length(served: PlaneProcess) -> None:
    tensors = random_inputs(6)
    (alone,) = unpacked(over_http(served, "six", tensors))[1].values()
    document, arrays = unpacked(over_http(served, "bert", tensors))
    assert document["outputs"][0]["shape"] == [1, 6, 16]
    np.testing.assert_array_equal(arrays["output"], alone)
    np.testing.assert_array_equal(over_grpc(served, "bert", tensors), alone)


@pytest.mark.parametrize("length", [1, 4, 5, 8])
def test_both_protocols_and_json_agree(served: PlaneProcess, length: int) -> None:
    tensors = random_inputs(length)
    (binary,) = unpacked(over_http(served, "bert", tensors))[1].values()
    assert binary.shape == (1, length, 16)
    np.testing.assert_array_equal(over_grpc(served, "bert", tensors), binary)
    document = {"inputs": [entry(name, array, data=array.tolist()) for name, array in tensors.items()]}
    (output,) = httpx.post(f"{served.url}/v2/models/bert/infer", json=document, timeout=GIVE_UP_S).json()["outputs"]
    np.testing.assert_array_equal(np.array(output["data"], np.float32), binary.reshape(-1))


@pytest.mark.parametrize("length", [0, 9])
def test_another_length_is_rejected_with_the_list(served: PlaneProcess, length: int) -> None:
    response = over_http(served, "bert", random_inputs(length))
    assert response.status_code == 400, response.text
    assert "built for [1, 4], [1, 8], and shorter ones are filled up" in response.text or length == 9
    with pytest.raises(InferenceServerException, match=r"built for \[1, 4\], \[1, 8\]"):
        over_grpc(served, "bert", random_inputs(length))


def test_inputs_with_different_lengths_are_rejected(served: PlaneProcess) -> None:
    response = over_http(served, "bert", {**random_inputs(5), "attention_mask": np.ones((1, 4), np.int64)})
    assert response.status_code == 400, response.text
    assert "[1, 5] and [1, 4], which do not go together" in response.text
