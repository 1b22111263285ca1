"""An unmodified `tritonclient.grpc` works with the data plane, in its blocking and asyncio forms."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tritonclient import grpc as triton
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from service import __version__
from service.core.models.signature import DATATYPES
from tests.support.data_plane import DataPlane, extremes, sample_tables, serving
from tests.support.waiting import WORK_TIMEOUT_S

IMAGE = (np.arange(64, dtype=np.uint8) * 4).reshape(1, 8, 8, 1)
COLUMNS = IMAGE.sum(axis=(1, 3), dtype=np.int32)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    plane = DataPlane(sample_tables())
    with serving(plane):
        yield plane.grpc


@pytest.fixture
def client(url: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(url) as client:
        yield client


def input_of(name: str, array: np.ndarray[Any, Any], datatype: str) -> triton.InferInput:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def test_health(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("digits", "9")
    assert not client.is_model_ready("unbuilt")
    assert not client.is_model_ready("cats")


def test_metadata(client: triton.InferenceServerClient) -> None:
    server = client.get_server_metadata()
    assert (server.name, server.version) == ("octet", __version__)
    assert {"statistics", "model_repository", "model_configuration"} < set(server.extensions)
    assert client.get_model_metadata("digits", as_json=True) == {
        "name": "digits",
        "versions": ["1", "2"],
        "platform": "octet_plan",
        "inputs": [{"name": "image", "datatype": "UINT8", "shape": ["1", "8", "8", "1"]}],
        "outputs": [
            {"name": "columns", "datatype": "INT32", "shape": ["1", "8"]},
            {"name": "top", "datatype": "UINT8", "shape": ["1"]},
        ],
    }


def test_configuration(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("digits").config
    assert (config.name, config.platform, config.backend, config.max_batch_size) == (
        "digits",
        "octet_plan",
        "octet",
        0,
    )
    assert [(each.name, each.data_type, list(each.dims)) for each in config.input] == [("image", 2, [1, 8, 8, 1])]


def test_statistics(client: triton.InferenceServerClient) -> None:
    def count() -> int:
        (found,) = client.get_inference_statistics("affine", "1").model_stats
        return int(found.inference_stats.success.count)

    before = count()
    x, a, b = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int8), np.zeros((1, 4), np.int64)
    client.infer("affine", [input_of("x", x, "FP32"), input_of("a", a, "INT8"), input_of("b", b, "INT64")])
    assert count() == before + 1
    assert "affine" in {each.name for each in client.get_inference_statistics().model_stats}


def test_the_repository(client: triton.InferenceServerClient) -> None:
    def states() -> dict[tuple[str, str], str]:
        return {(each.name, each.version): each.state for each in client.get_model_repository_index().models}

    client.load_model("bool")
    assert states()["bool", "1"] == "READY"
    client.unload_model("bool")
    assert states()["bool", "1"] == "UNAVAILABLE"
    assert not client.is_model_ready("bool")
    client.load_model("bool")
    assert client.is_model_ready("bool")
    with pytest.raises(InferenceServerException, match="has no parameter 'config'"):
        client.load_model("bool", config="{}")


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_infer(client: triton.InferenceServerClient, compression: str | None) -> None:
    result = client.infer(
        "digits",
        [input_of("image", IMAGE, "UINT8")],
        outputs=[triton.InferRequestedOutput("columns")],
        request_id="seven",
        compression_algorithm=compression,
        client_timeout=WORK_TIMEOUT_S,
    )
    np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)
    assert result.as_numpy("top") is None
    assert result.get_response().id == "seven"


def test_infer_on_a_version_without_naming_outputs(client: triton.InferenceServerClient) -> None:
    for version, top in (("1", 252), ("2", 253), ("", 253)):
        result = client.infer("digits", [input_of("image", IMAGE, "UINT8")], model_version=version)
        assert result.get_response().model_version == (version or "2")
        np.testing.assert_array_equal(result.as_numpy("top"), [top])
        np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)


@pytest.mark.parametrize("datatype", ["BOOL", "UINT16", "INT8", "INT16", "INT32", "INT64", "FP32"])
def test_every_datatype_there_and_back(client: triton.InferenceServerClient, datatype: str) -> None:
    array = extremes(np.dtype(DATATYPES[datatype]))
    result = client.infer(datatype.lower(), [input_of("x", array, datatype)])
    np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_a_large_tensor(client: triton.InferenceServerClient) -> None:
    array = np.random.default_rng(0).integers(0, 256, (1, 224, 224, 3), np.uint8)
    np.testing.assert_array_equal(client.infer("large", [input_of("x", array, "UINT8")]).as_numpy("y"), array)


def test_a_picture_as_bytes(client: triton.InferenceServerClient) -> None:
    file = BytesIO()
    Image.fromarray(IMAGE[0, :, :, 0]).save(file, "PNG")
    result = client.infer("digits", [input_of("image", np.array([file.getvalue()], object), "BYTES")])
    np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)


def test_many_requests_at_once(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for value in range(6):
        image = np.full((1, 8, 8, 1), value, np.uint8)
        client.async_infer(
            "digits",
            [input_of("image", image, "UINT8")],
            lambda result, error, value=value: answers.put((value, result, error)),
        )
    for _ in range(6):
        value, result, error = answers.get(timeout=WORK_TIMEOUT_S)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("columns"), np.full((1, 8), value * 8))


def test_a_stream(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for name in ("image", "img", "image"):
        client.async_stream_infer("digits", [input_of(name, IMAGE, "UINT8")])
    first, second, third = (answers.get(timeout=WORK_TIMEOUT_S) for _ in range(3))
    client.stop_stream()
    for result, error in (first, third):
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)
    assert "no input 'img'" in str(second[1])


@pytest.mark.parametrize(
    ("model", "tensor", "status", "error"),
    [
        ("cats", input_of("image", IMAGE, "UINT8"), "StatusCode.NOT_FOUND", "no model 'cats'"),
        ("unbuilt", input_of("image", IMAGE, "UINT8"), "StatusCode.UNAVAILABLE", "has not been built"),
        ("digits", input_of("img", IMAGE, "UINT8"), "StatusCode.INVALID_ARGUMENT", "no input 'img'"),
        ("digits", input_of("image", IMAGE[:, :4], "UINT8"), "StatusCode.INVALID_ARGUMENT", "has shape [1, 4, 8, 1]"),
        (
            "digits",
            input_of("image", IMAGE.astype(np.float32), "FP32"),
            "StatusCode.INVALID_ARGUMENT",
            "is sent as 'FP32'",
        ),
        (
            "digits",
            input_of("image", np.array([b"no picture"], object), "BYTES"),
            "StatusCode.INVALID_ARGUMENT",
            "not a picture in a supported format",
        ),
        ("fp32", input_of("x", np.full((1, 4), np.nan, np.float32), "FP32"), "StatusCode.INVALID_ARGUMENT", "NaN"),
    ],
)
def test_errors_reach_the_client(
    client: triton.InferenceServerClient, model: str, tensor: triton.InferInput, status: str, error: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [tensor])
    assert caught.value.status() == status
    assert error in caught.value.message()


@pytest.mark.anyio
async def test_the_asyncio_client() -> None:
    plane = DataPlane(sample_tables())
    async with plane.lifespan(), aio.InferenceServerClient(plane.grpc) as client:
        assert await client.is_server_ready()
        assert await client.is_model_ready("digits")
        result = await client.infer("digits", [input_of("image", IMAGE, "UINT8")], request_id="a")
        np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)
        with pytest.raises(InferenceServerException, match="no model 'cats'"):
            await client.infer("cats", [input_of("image", IMAGE, "UINT8")])

        async def requests() -> Any:
            for _ in range(3):
                yield {"model_name": "digits", "inputs": [input_of("image", IMAGE, "UINT8")]}

        answers = [answer async for answer in client.stream_infer(requests())]
        assert [error for _, error in answers] == [None] * 3


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_the_greatest_elements_of_an_output(client: triton.InferenceServerClient) -> None:
    outputs = [triton.InferRequestedOutput("columns", class_count=3), triton.InferRequestedOutput("top")]
    result = client.infer("digits", [input_of("image", IMAGE, "UINT8")], outputs=outputs)
    assert result.as_numpy("columns").tolist() == [f"{COLUMNS[0, index]}:{index}".encode() for index in (7, 6, 5)]
    np.testing.assert_array_equal(result.as_numpy("top"), [253])
