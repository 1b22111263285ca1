"""Predictions over gRPC, and the connections of their clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
from grpc.aio import AioRpcError, Channel

from service.api.grpc import inference_pb2 as pb
from service.core.models.signature import datatype_of
from tests.support.data_plane import DataPlane, channel, sample_tables
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio
NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name


@pytest.fixture
async def plane() -> DataPlane:
    return DataPlane(sample_tables())


@pytest.fixture
async def opened(plane: DataPlane) -> AsyncIterator[Channel]:
    async with channel(plane) as opened:
        yield opened


def request_of(array: np.ndarray[Any, Any], model: str, **members: Any) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model, raw_input_contents=[array.tobytes()], **members)
    message.inputs.add(name="x", datatype=datatype_of(array.dtype.name), shape=array.shape)
    return message


def infer(channel: Channel, message: pb.ModelInferRequest | bytes, **options: Any) -> Any:
    """Sends a request and returns the response, both as serialized messages."""
    sent = message if isinstance(message, bytes) else message.SerializeToString()
    return channel.unary_unary(f"/{NAME}/ModelInfer")(sent, **options)


async def test_a_repeated_request_gets_the_same_response(opened: Channel) -> None:
    message = request_of(np.array([[1, 2, 3, 4]], np.int8), "int8")
    answers = [await infer(opened, message) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert pb.ModelInferResponse.FromString(answers[2]).raw_output_contents == [bytes([1, 2, 3, 4])]


async def test_the_trailers_are_the_same_each_time(opened: Channel) -> None:
    message = request_of(np.array([[1, 2, 3, 4]], np.int8), "int8")
    found = []
    for _ in range(2):
        call = infer(opened, message, metadata=(("x-request-id", "r.1"),))
        await call
        found.append(dict(await call.trailing_metadata()))
    assert found[0].keys() == found[1].keys()
    assert found[1]["x-request-id"] == "r.1"


async def test_no_response_goes_to_another_call(opened: Channel) -> None:
    await infer(opened, request_of(np.zeros((1, 4), np.int32), "int32"))

    async def echoed(tag: int) -> bool:
        array = np.full((1, 4), tag, np.int32)
        answer = pb.ModelInferResponse.FromString(await infer(opened, request_of(array, "int32")))
        return bytes(answer.raw_output_contents[0]) == array.tobytes()

    for _ in range(20):  # no more than fit the queue
        assert all(await asyncio.gather(*(echoed(tag) for tag in range(8))))


async def test_versions_and_models_are_distinguished(opened: Channel) -> None:
    image = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
    messages = [request_of(image, "digits", model_version=version) for version in ("", "1", "2")]
    for message in messages:
        message.inputs[0].name = "image"
    answers = [[await infer(opened, message) for message in messages] for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0][1] != answers[0][2]


@pytest.mark.parametrize(
    "spoil", [lambda known: known[:-1], lambda known: known + b"\x3a\1x", lambda known: known + b"\x3a"]
)
async def test_a_known_header_with_wrong_tensors_is_rejected(opened: Channel, spoil: Any) -> None:
    known = request_of(np.zeros((1, 4), np.int8), "int8").SerializeToString()
    await infer(opened, known)
    with pytest.raises(AioRpcError) as caught:
        await infer(opened, spoil(known))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_predictions_are_counted(plane: DataPlane, opened: Channel) -> None:
    message = request_of(np.zeros((1, 4), np.int8), "int8")
    for _ in range(5):
        await infer(opened, message)
    lines = (await plane.scraped()).splitlines()
    (line,) = (line for line in lines if line.startswith('octet_requests_total{code="OK"'))
    assert 'model="int8",protocol="grpc"' in line
    assert line.endswith(" 5.0")
    answer = await opened.unary_unary(f"/{NAME}/ModelStatistics")(
        pb.ModelStatisticsRequest(name="int8").SerializeToString()
    )
    (statistics,) = pb.ModelStatisticsResponse.FromString(answer).model_stats
    assert statistics.inference_stats.success.count == 5


async def test_a_silent_client_blocks_no_other() -> None:
    plane = DataPlane(sample_tables(), head_timeout_s=0.1)
    async with plane.lifespan():
        host, port = plane.grpc.split(":")
        with socket.create_connection((host, int(port)), timeout=GIVE_UP_S) as mute:
            assert await asyncio.to_thread(mute.recv, 100)  # SETTINGS
            assert await asyncio.to_thread(mute.recv, 100) == b""
