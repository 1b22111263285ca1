"""Predictions that the native front answers without Python, and those that it leaves to it."""

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
from service.api.grpc import native
from service.api.grpc.infer import Infer
from service.api.grpc.service import NAME
from service.core.signature import datatype_of
from tests.support.data_plane import DataPlane, channel, sample_tables
from tests.support.runners import FunctionRunner, identity, quantized
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S, eventually_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages that Python answered."""
    seen: list[bytes] = []
    one = Infer.one

    async def noted(self: Infer, message: bytes, context: Any) -> Any:
        seen.append(message)
        return await one(self, message, context)

    monkeypatch.setattr(Infer, "one", noted)
    return seen


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
    """A call on bytes."""
    sent = message if isinstance(message, bytes) else message.SerializeToString()
    return channel.unary_unary(f"/{NAME}/ModelInfer")(sent, **options)


async def test_who_asks_again_is_answered_without_python_and_alike(opened: Channel, asked: list[bytes]) -> None:
    message = request_of(np.array([[1, 2, 3, 4]], np.int8), "int8")
    answers = [await infer(opened, message) for _ in range(3)]
    assert len(asked) == 1
    assert answers[0] == answers[1] == answers[2]
    assert pb.ModelInferResponse.FromString(answers[2]).raw_output_contents == [bytes([1, 2, 3, 4])]


async def test_the_trailers_are_the_same(opened: Channel, asked: list[bytes]) -> None:
    message = request_of(np.array([[1, 2, 3, 4]], np.int8), "int8")
    found = []
    for _ in range(2):
        call = infer(opened, message, metadata=(("x-request-id", "r.1"),))
        await call
        found.append(dict(await call.trailing_metadata()))
    assert len(asked) == 1
    assert found[0].keys() == found[1].keys()
    assert found[1]["x-request-id"] == "r.1"


async def test_no_answer_goes_to_another(opened: Channel, asked: list[bytes]) -> None:
    await infer(opened, request_of(np.zeros((1, 4), np.int32), "int32"))

    async def echoed(tag: int) -> bool:
        array = np.full((1, 4), tag, np.int32)
        answer = pb.ModelInferResponse.FromString(await infer(opened, request_of(array, "int32")))
        return bytes(answer.raw_output_contents[0]) == array.tobytes()

    for _ in range(20):  # no more than the queue takes at a time
        assert all(await asyncio.gather(*(echoed(tag) for tag in range(8))))
    assert len(asked) == 1


async def test_versions_and_models_are_told_apart(opened: Channel, asked: list[bytes]) -> None:
    image = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
    messages = [request_of(image, "digits", model_version=version) for version in ("", "1", "2")]
    for message in messages:
        message.inputs[0].name = "image"
    answers = [[await infer(opened, message) for message in messages] for _ in range(2)]
    assert len(asked) == 3
    assert answers[0] == answers[1]
    assert answers[0][1] != answers[0][2]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        pytest.param(request_of(np.zeros((1, 4), np.int8), "int8", id="seven"), {}, id="id"),
        pytest.param(
            request_of(np.zeros((1, 224, 224, 3), np.uint8), "large"), {"compression": grpc.Compression.Gzip}, id="gzip"
        ),
        pytest.param(
            request_of(np.zeros((1, 4), np.int8), "int8"), {"metadata": (("accept-encoding", "gzip"),)}, id="accepts"
        ),
    ],
)
async def test_the_unusual_is_answered_in_python(
    opened: Channel, asked: list[bytes], message: pb.ModelInferRequest, options: dict[str, Any]
) -> None:
    plain = request_of(np.zeros((1, 4), np.int8), "int8")
    for _ in range(2):
        await infer(opened, plain)
    for _ in range(3):
        await infer(opened, message, **options)
    assert len(asked) == 1 + 3


async def test_a_request_for_real_values_is_never_answered_with_stored_ones(asked: list[bytes]) -> None:
    tables = Tables()
    tables.model("quantized", quantized)
    plain = request_of(np.array([[-3, -128, 127, 0]], np.int8), "quantized")
    real = pb.ModelInferRequest.FromString(plain.SerializeToString())
    real.parameters["dequantize"].bool_param = True
    async with channel(DataPlane(tables)) as opened:
        for _ in range(3):
            stored = pb.ModelInferResponse.FromString(await infer(opened, plain))
            assert stored.outputs[0].datatype == "INT8"
            answer = pb.ModelInferResponse.FromString(await infer(opened, real))
            assert [output.datatype for output in answer.outputs] == ["FP32", "FP32"]
            assert np.frombuffer(answer.raw_output_contents[0], "<f4").tolist() == [0.0, -62.5, 65.0, 1.5]
    assert len(asked) == 1 + 3


@pytest.mark.parametrize(
    "spoil", [lambda known: known[:-1], lambda known: known + b"\x3a\1x", lambda known: known + b"\x3a"]
)
async def test_known_words_with_wrong_tensors_are_refused(opened: Channel, asked: list[bytes], spoil: Any) -> None:
    known = request_of(np.zeros((1, 4), np.int8), "int8").SerializeToString()
    await infer(opened, known)
    with pytest.raises(AioRpcError) as caught:
        await infer(opened, spoil(known))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(asked) == 2


async def test_what_is_no_number_is_refused(opened: Channel, asked: list[bytes]) -> None:
    numbers, others = (request_of(np.full((1, 4), each, np.float32), "fp32") for each in (0.5, np.nan))
    for _ in range(2):
        await infer(opened, numbers)
    assert len(asked) == 1
    with pytest.raises(AioRpcError) as caught:
        await infer(opened, others)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_they_are_counted(plane: DataPlane, opened: Channel, asked: list[bytes]) -> None:
    message = request_of(np.zeros((1, 4), np.int8), "int8")
    for _ in range(5):
        await infer(opened, message)
    plane.metrics.gather()
    assert len(asked) == 1
    lines = plane.metrics.text().decode().splitlines()
    (line,) = (line for line in lines if line.startswith('octet_requests_total{code="OK"'))
    assert 'model="int8",protocol="grpc"' in line
    assert line.endswith(" 5.0")
    answer = await opened.unary_unary(f"/{NAME}/ModelStatistics")(
        pb.ModelStatisticsRequest(name="int8").SerializeToString()
    )
    (statistics,) = pb.ModelStatisticsResponse.FromString(answer).model_stats
    assert statistics.inference_stats.success.count == 5


@pytest.mark.parametrize(
    ("failure", "code"),
    [(RuntimeError("/secret/path"), "INTERNAL"), (MemoryError("Unable to allocate 9 GiB"), "UNAVAILABLE")],
)
async def test_a_failure_is_told_as_python_tells_it(asked: list[bytes], failure: Exception, code: str) -> None:
    def fail(x: Any) -> list[Any]:
        if x[0, 0] == 1:
            raise failure
        return [x]

    tables = Tables()
    tables.model("m", lambda: FunctionRunner(identity("UINT8", 1, 1).signature, fail))
    async with channel(DataPlane(tables)) as opened:
        await infer(opened, request_of(np.array([[0]], np.uint8), "m"))
        with pytest.raises(AioRpcError) as caught:
            await infer(opened, request_of(np.array([[1]], np.uint8), "m"), metadata=(("x-request-id", "r.1"),))
    assert len(asked) == 1
    assert caught.value.code().name == code
    assert "secret" not in str(caught.value)
    assert dict(caught.value.trailing_metadata())["x-request-id"] == "r.1"


async def test_a_client_without_calls_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_IDLE_TIMEOUT_S", 0.1)
    message = request_of(np.zeros((1, 4), np.int8), "int8")
    async with channel(DataPlane(sample_tables())) as opened:
        await infer(opened, message)
        await eventually_async(lambda: opened.get_state() is grpc.ChannelConnectivity.IDLE)
        await infer(opened, message)


async def test_who_says_nothing_is_not_waited_for() -> None:
    plane = DataPlane(sample_tables(), head_timeout_s=0.1)
    async with plane.lifespan():
        host, port = plane.grpc.split(":")
        with socket.create_connection((host, int(port)), timeout=GIVE_UP_S) as mute:
            assert await asyncio.to_thread(mute.recv, 100)  # SETTINGS
            assert await asyncio.to_thread(mute.recv, 100) == b""
