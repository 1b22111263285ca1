"""The bytes of predict requests over gRPC: those that the parser accepts, and those that it rejects."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from grpc.aio import AioRpcError, Channel

from service.api.grpc import inference_pb2 as pb
from tests.support.data_plane import DataPlane, channel
from tests.support.runners import affine, digits, identity, quantized
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio
METHOD = "/inference.GRPCInferenceService/ModelInfer"
DATATYPES = ("BOOL", "UINT8", "UINT16", "INT8", "INT16", "INT32", "INT64", "FP32")


@pytest.fixture
async def opened() -> AsyncIterator[Channel]:
    tables = Tables()
    for datatype in DATATYPES:
        tables.model(datatype, lambda datatype=datatype: identity(datatype, 1, 4))  # type: ignore[misc]
    tables.model("affine", affine)
    tables.model("digits", digits)
    tables.model("quantized", quantized)
    async with channel(DataPlane(tables)) as opened:
        yield opened


def request_of(*raw: bytes, datatype: str = "UINT8", shape: tuple[int, ...] = (1, 4)) -> pb.ModelInferRequest:
    inputs = [pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)]
    return pb.ModelInferRequest(model_name="UINT8", inputs=inputs, raw_input_contents=raw)


async def answer(opened: Channel, message: pb.ModelInferRequest | bytes) -> pb.ModelInferResponse:
    sent = message if isinstance(message, bytes) else message.SerializeToString()
    found: pb.ModelInferResponse = pb.ModelInferResponse.FromString(await opened.unary_unary(METHOD)(sent))
    return found


async def status(opened: Channel, message: bytes) -> grpc.StatusCode:
    try:
        await answer(opened, message)
    except AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def refusal(opened: Channel, message: pb.ModelInferRequest | bytes) -> str:
    """Returns the error message for a malformed request."""
    with pytest.raises(AioRpcError) as caught:
        await answer(opened, message)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(caught.value.details())


async def test_protobuf_and_the_data_plane_accept_the_same_bytes(opened: Channel) -> None:
    """If protobuf's own parser rejects a damaged message, the data plane rejects it too, and answers the next
    message."""
    random = np.random.default_rng(0)
    whole = request_of(b"\1\2\3\4").SerializeToString()
    for _ in range(200):
        damaged = bytearray(whole)
        for at in random.integers(0, len(whole), random.integers(1, 4)):
            damaged[at] = random.integers(0, 256)
        message = bytes(damaged[: random.integers(1, len(whole) + 1)])
        code = await status(opened, message)
        try:
            pb.ModelInferRequest.FromString(message)
        except DecodeError:
            assert code is grpc.StatusCode.INVALID_ARGUMENT
        else:
            assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert (await answer(opened, whole)).raw_output_contents == [b"\1\2\3\4"]


@pytest.mark.parametrize(
    ("datatype", "member", "values"),
    [
        ("BOOL", "bool_contents", [True, False, True, False]),
        ("UINT8", "uint_contents", [0, 255, 1, 2]),
        ("UINT16", "uint_contents", [0, 2**16 - 1, 1, 2]),
        ("INT8", "int_contents", [-128, 127, 0, 1]),
        ("INT16", "int_contents", [-(2**15), 2**15 - 1, 0, 1]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1, 0, 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1, 0, 1]),
        ("FP32", "fp32_contents", [-1.5, 3.0, 0.0, 2.0**100]),
    ],
)
async def test_elements_in_the_field_of_their_datatype(
    opened: Channel, datatype: str, member: str, values: list[object]
) -> None:
    message = request_of(datatype=datatype)
    message.model_name = datatype
    getattr(message.inputs[0].contents, member).extend(values)
    (raw,) = (await answer(opened, message)).raw_output_contents
    dtype = identity(datatype, 1, 4).signature.inputs[0].dtype
    np.testing.assert_array_equal(np.frombuffer(raw, dtype), values)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (request_of(b"1234", b"5678"), "has 1 inputs and 2 raw_input_contents"),
        (request_of(b"12345"), "declares 5 bytes of binary data"),
        (request_of(), "has 0 uint_contents, but its shape [1, 4] has 4 elements"),
        (request_of(b"1234", shape=(4,)), "has shape [4]"),
        (request_of(b"1234", datatype="INT8"), "is sent as 'INT8'"),
        (pb.ModelInferRequest(model_name="UINT8"), "input 'x' is missing"),
    ],
)
async def test_a_message_that_does_not_fit_is_rejected(
    opened: Channel, message: pb.ModelInferRequest, error: str
) -> None:
    assert error in await refusal(opened, message)


@pytest.mark.parametrize(("values", "error"), [([256, 0, 0, 0], "256"), ([1, 2, 3], "has 3 uint_contents")])
async def test_elements_out_of_range_or_with_a_wrong_count(opened: Channel, values: list[int], error: str) -> None:
    message = request_of()
    message.inputs[0].contents.uint_contents.extend(values)
    assert error in await refusal(opened, message)


async def test_elements_in_both_forms(opened: Channel) -> None:
    message = request_of(b"1234")
    message.inputs[0].contents.uint_contents.extend([1, 2, 3, 4])
    assert "both contents and raw_input_contents" in await refusal(opened, message)


async def test_a_float_that_is_not_a_number(opened: Channel) -> None:
    message = request_of(datatype="FP32")
    message.model_name = "FP32"
    message.inputs[0].contents.fp32_contents.extend([0, 0, float("nan"), 0])
    assert re.search("outside the range|NaN", await refusal(opened, message))
    raw = request_of(np.array([0, 0, np.nan, 0], np.float32).tobytes(), datatype="FP32")
    raw.model_name = "FP32"
    assert "NaN" in await refusal(opened, raw)


@pytest.mark.parametrize("of", ["inputs", "outputs"])
async def test_incomplete_shared_memory_parameters_are_rejected(opened: Channel, of: str) -> None:
    message = request_of(b"1234")
    message.outputs.add(name="y")
    getattr(message, of)[0].parameters["shared_memory_region"].string_param = "r"
    assert "shared memory" in await refusal(opened, message)


async def test_inputs_in_another_order_are_matched_by_name(opened: Channel) -> None:
    arrays: dict[str, Any] = {
        "b": np.array([[1, 2, 3, 4]], np.int64),
        "x": np.array([[0.5, 1, 2, 3]], np.float32),
        "a": np.array([[5, 6, 7, 8]], np.int8),
    }
    message = pb.ModelInferRequest(
        model_name="affine", raw_input_contents=[array.tobytes() for array in arrays.values()]
    )
    for (name, array), datatype in zip(arrays.items(), ("INT64", "FP32", "INT8"), strict=True):
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
    (raw,) = (await answer(opened, message)).raw_output_contents
    np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), (arrays["x"] * arrays["a"] + arrays["b"])[0])


async def test_outputs_are_selected_by_name(opened: Channel) -> None:
    message = pb.ModelInferRequest(model_name="digits", raw_input_contents=[bytes(64)])
    message.inputs.add(name="image", datatype="UINT8", shape=(1, 8, 8, 1))
    message.outputs.add(name="top")
    assert [each.name for each in (await answer(opened, message)).outputs] == ["top"]


async def test_real_values_on_request(opened: Channel) -> None:
    message = request_of(np.array([-3, -128, 127, 0], np.int8).tobytes(), datatype="INT8")
    message.model_name = "quantized"
    stored = await answer(opened, message)
    assert [output.datatype for output in stored.outputs] == ["INT8", "FP32"]
    message.parameters["dequantize"].bool_param = True
    real = await answer(opened, message)
    assert [output.datatype for output in real.outputs] == ["FP32", "FP32"]
    assert np.frombuffer(real.raw_output_contents[0], "<f4").tolist() == [0.0, -62.5, 65.0, 1.5]


async def test_a_message_with_too_many_fields_is_rejected_early(opened: Channel) -> None:
    message = pb.ModelInferRequest(model_name="UINT8", raw_input_contents=[b""] * 1_000_000)
    assert await refusal(opened, message)
