"""An unmodified `tritonclient.http` works with the data plane."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tritonclient import http as triton
from tritonclient.http import aio
from tritonclient.utils import InferenceServerException

from service import __version__
from service.core.models.signature import DATATYPES
from tests.support.data_plane import DataPlane, extremes, sample_tables, serving

IMAGE = (np.arange(64, dtype=np.uint8) * 4).reshape(1, 8, 8, 1)
COLUMNS = IMAGE.sum(axis=(1, 3), dtype=np.int32)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(DataPlane(sample_tables())) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[triton.InferenceServerClient]:
    client = triton.InferenceServerClient(url, concurrency=4)
    yield client
    client.close()


def input_of(name: str, array: np.ndarray[Any, Any], datatype: str, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def test_health(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("digits", "9")
    assert not client.is_model_ready("unbuilt")
    assert not client.is_model_ready("cats")


def test_server_metadata(client: triton.InferenceServerClient) -> None:
    extensions = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "sequence"]
    extensions.append("statistics")
    assert client.get_server_metadata() == {"name": "octet", "version": __version__, "extensions": extensions}


def test_model_metadata(client: triton.InferenceServerClient) -> None:
    assert client.get_model_metadata("digits") == {
        "name": "digits",
        "versions": ["1", "2"],
        "platform": "octet_plan",
        "inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 8, 8, 1]}],
        "outputs": [
            {"name": "columns", "datatype": "INT32", "shape": [1, 8]},
            {"name": "top", "datatype": "UINT8", "shape": [1]},
        ],
    }


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_infer(
    client: triton.InferenceServerClient, binary_in: bool, binary_out: bool, compression: str | None
) -> None:
    result = client.infer(
        "digits",
        [input_of("image", IMAGE, "UINT8", binary_in)],
        outputs=[triton.InferRequestedOutput("columns", binary_data=binary_out)],
        request_id="seven",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)
    assert result.as_numpy("top") is None
    assert result.get_response()["id"] == "seven"


def test_infer_without_naming_outputs(client: triton.InferenceServerClient) -> None:
    result = client.infer("digits", [input_of("image", IMAGE, "UINT8")])
    np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)
    np.testing.assert_array_equal(result.as_numpy("top"), [253])
    assert result.get_response()["model_version"] == "2"


def test_infer_on_a_version(client: triton.InferenceServerClient) -> None:
    result = client.infer("digits", [input_of("image", IMAGE, "UINT8")], model_version="1")
    assert result.get_response()["model_version"] == "1"
    np.testing.assert_array_equal(result.as_numpy("top"), [252])


def test_inputs_of_mixed_form_in_another_order(client: triton.InferenceServerClient) -> None:
    x = np.array([[0.5, -1.0, 2.0, 3.0]], np.float32)
    a = np.array([[2, -128, 127, 0]], np.int8)
    b = np.array([[1, 2, 3, -(2**40)]], np.int64)
    result = client.infer(
        "affine", [input_of("b", b, "INT64"), input_of("a", a, "INT8", binary=False), input_of("x", x, "FP32")]
    )
    np.testing.assert_array_equal(result.as_numpy("y"), (x * a + b).astype(np.float32))


@pytest.mark.parametrize("datatype", ["BOOL", "UINT16", "INT8", "INT16", "INT32", "INT64", "FP32"])
@pytest.mark.parametrize("binary", [True, False])
def test_every_datatype_there_and_back(client: triton.InferenceServerClient, datatype: str, binary: bool) -> None:
    array = extremes(np.dtype(DATATYPES[datatype]))
    result = client.infer(
        datatype.lower(),
        [input_of("x", array, datatype, binary)],
        outputs=[triton.InferRequestedOutput("y", binary_data=binary)],
    )
    np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_a_tensor_that_comes_in_many_pieces(client: triton.InferenceServerClient) -> None:
    array = np.random.default_rng(0).integers(0, 256, (1, 224, 224, 3), np.uint8)
    result = client.infer("large", [input_of("x", array, "UINT8")])
    np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_a_large_tensor_compressed_both_ways(client: triton.InferenceServerClient, compression: str) -> None:
    array = np.random.default_rng(0).integers(0, 4, (1, 224, 224, 3), np.uint8)
    result = client.infer(
        "large",
        [input_of("x", array, "UINT8")],
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_statistics(client: triton.InferenceServerClient) -> None:
    def count() -> int:
        (found,) = client.get_inference_statistics("digits", "1")["model_stats"]
        return int(found["inference_stats"]["success"]["count"])

    before = count()
    client.infer("digits", [input_of("image", IMAGE, "UINT8")], model_version="1")
    assert count() == before + 1
    assert "digits" in {each["name"] for each in client.get_inference_statistics()["model_stats"]}


def test_configuration(client: triton.InferenceServerClient) -> None:
    assert client.get_model_config("digits")["input"] == [
        {"name": "image", "data_type": "TYPE_UINT8", "dims": [1, 8, 8, 1]}
    ]


def test_the_repository(client: triton.InferenceServerClient) -> None:
    def states() -> dict[tuple[str, str], str]:
        return {(each["name"], each["version"]): each["state"] for each in client.get_model_repository_index()}

    client.load_model("bool")
    assert states()["bool", "1"] == "READY"
    client.unload_model("bool")
    assert states()["bool", "1"] == "UNAVAILABLE"
    assert not client.is_model_ready("bool")
    client.load_model("bool")
    assert client.is_model_ready("bool")
    with pytest.raises(InferenceServerException, match="has no parameter 'config'"):
        client.load_model("bool", config="{}")


@pytest.mark.anyio
async def test_the_asyncio_client(url: str) -> None:
    async with aio.InferenceServerClient(url) as client:
        assert await client.is_server_ready()
        assert await client.is_model_ready("digits")
        result = await client.infer(
            "digits",
            [input_of("image", IMAGE, "UINT8")],
            request_compression_algorithm="gzip",
            response_compression_algorithm="gzip",
        )
        np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)
        with pytest.raises(InferenceServerException, match="no model 'cats'"):
            await client.infer("cats", [input_of("image", IMAGE, "UINT8")])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_picture_as_bytes(client: triton.InferenceServerClient) -> None:
    file = BytesIO()
    Image.fromarray(IMAGE[0, :, :, 0]).save(file, "PNG")
    pictures = np.array([file.getvalue()], object)
    result = client.infer("digits", [input_of("image", pictures, "BYTES")])
    np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)


def test_many_requests_at_once_on_kept_connections(client: triton.InferenceServerClient) -> None:
    images = [np.full((1, 8, 8, 1), value, np.uint8) for value in range(40)]
    pending = [client.async_infer("digits", [input_of("image", image, "UINT8")]) for image in images]
    for value, request in enumerate(pending):
        np.testing.assert_array_equal(request.get_result().as_numpy("columns"), np.full((1, 8), value * 8))


@pytest.mark.parametrize(
    ("model", "tensor", "status", "error"),
    [
        ("cats", input_of("image", IMAGE, "UINT8"), "404", "no model 'cats'"),
        ("unbuilt", input_of("image", IMAGE, "UINT8"), "503", "has not been built"),
        ("digits", input_of("img", IMAGE, "UINT8"), "400", "no input 'img'"),
        ("digits", input_of("image", IMAGE[:, :4], "UINT8"), "400", "has shape [1, 4, 8, 1]"),
        ("digits", input_of("image", IMAGE.astype(np.float32), "FP32"), "400", "is sent as 'FP32'"),
        ("digits", input_of("image", IMAGE.astype(np.float16), "FP16"), "400", "is sent as 'FP16'"),
        (
            "digits",
            input_of("image", np.array([b"no picture"], object), "BYTES"),
            "415",
            "not a picture in a supported format",
        ),
        ("fp32", input_of("x", np.full((1, 4), np.nan, np.float32), "FP32"), "400", "holds NaN"),
    ],
)
def test_errors_reach_the_client(
    client: triton.InferenceServerClient, model: str, tensor: triton.InferInput, status: str, error: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [tensor])
    assert caught.value.status() == status
    assert error in caught.value.message()


def test_a_request_body_made_offline(url: str, client: triton.InferenceServerClient) -> None:
    body, json_size = triton.InferenceServerClient.generate_request_body([input_of("image", IMAGE, "UINT8")])
    assert struct.unpack("<64B", body[json_size:]) == tuple(IMAGE.reshape(-1))
    response = client._post(
        "v2/models/digits/infer", body, {"Inference-Header-Content-Length": json_size}, query_params=None
    )
    header = int(response.get("Inference-Header-Content-Length"))
    result = triton.InferenceServerClient.parse_response_body(response.read(), header_length=header)
    np.testing.assert_array_equal(result.as_numpy("columns"), COLUMNS)


@pytest.mark.parametrize("binary", [True, False])
def test_the_greatest_elements_of_an_output(client: triton.InferenceServerClient, binary: bool) -> None:
    best = triton.InferRequestedOutput("columns", binary_data=binary, class_count=3)
    result = client.infer("digits", [input_of("image", IMAGE, "UINT8")], outputs=[best])
    assert list(map(as_text, result.as_numpy("columns"))) == [f"{COLUMNS[0, index]}:{index}" for index in (7, 6, 5)]
    assert result.get_output("columns")["datatype"] == "BYTES"


def as_text(element: bytes | str) -> str:
    return element.decode() if isinstance(element, bytes) else element
