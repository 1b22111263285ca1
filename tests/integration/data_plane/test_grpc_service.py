"""The service as gRPC clients use it: statuses, deadlines, cancellation, limits, health and shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from grpc.aio import AioRpcError, Channel
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from service.api.grpc import inference_pb2 as pb
from tests.support.data_plane import DataPlane, channel, sample_tables
from tests.support.gated_plane import GatedPlane
from tests.support.grpc_calls import NAME, infer, stream
from tests.support.runners import failing
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio


def request_of(array: np.ndarray[Any, Any], model: str = "m", version: str = "") -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model, model_version=version, raw_input_contents=[array.tobytes()])
    message.inputs.add(name="x", datatype=array.dtype.name.upper(), shape=array.shape)
    return message


@asynccontextmanager
async def busy(held: GatedPlane) -> AsyncIterator[tuple[Channel, Any]]:
    """Yields a channel, and a call that is being computed."""
    async with channel(held.plane) as opened:
        call = infer(opened)(request_of(np.array([[1]], np.uint8)))
        await held.gate.running()
        try:
            yield opened, call
        finally:
            held.gate.open()


@pytest.mark.parametrize(
    ("message", "code", "name", "details"),
    [
        (request_of(np.zeros((1, 4), np.int8), "cats"), "NOT_FOUND", "not_found", "there is no model 'cats'"),
        (request_of(np.zeros((1, 4), np.int8), "int8", "7"), "NOT_FOUND", "not_found", "has no version 7"),
        (request_of(np.zeros((1, 4), np.int8), "int8", "x"), "NOT_FOUND", "not_found", "has no alias 'x'"),
        (request_of(np.zeros((1, 4), np.int8), "unbuilt"), "UNAVAILABLE", "not_built", "has not been built"),
        (request_of(np.zeros((1, 5), np.int8), "int8"), "INVALID_ARGUMENT", "invalid_tensor", "has shape [1, 5]"),
    ],
)
async def test_an_error_has_a_status_a_sentence_and_a_code(
    message: pb.ModelInferRequest, code: str, name: str, details: str
) -> None:
    async with channel(DataPlane(sample_tables())) as opened:
        with pytest.raises(AioRpcError) as caught:
            await infer(opened)(message)
    assert caught.value.code().name == code
    assert details in caught.value.details()
    trailers = dict(caught.value.trailing_metadata())
    assert trailers["octet-code"] == name
    assert "grpc-retry-pushback-ms" not in trailers  # in all of these cases, retrying later would not help


async def test_bytes_that_are_not_a_message() -> None:
    async with channel(DataPlane(sample_tables())) as opened:
        for method in ("ModelInfer", "ModelMetadata"):
            with pytest.raises(AioRpcError) as caught:
                await opened.unary_unary(f"/{NAME}/{method}")(b"\xff\xff\xff")
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_unexpected_error_is_explained_only_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    tables = Tables()
    tables.model("m", failing)
    async with channel(DataPlane(tables)) as opened:
        with pytest.raises(AioRpcError) as caught:
            await infer(opened)(request_of(np.array([[1]], np.uint8)))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "7" not in caught.value.details()
    assert "a call of m version 1 failed" in capfd.readouterr().err


async def test_a_full_queue_refuses_at_once() -> None:
    held = GatedPlane(queue_size=1)
    async with busy(held) as (opened, running):
        waiting = infer(opened)(request_of(np.array([[2]], np.uint8)))
        await held.queued(1)
        with pytest.raises(AioRpcError) as caught:
            await infer(opened)(request_of(np.array([[3]], np.uint8)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
        held.gate.open()
        assert [(await call).raw_output_contents[0] for call in (running, waiting)] == [b"\1", b"\2"]
    assert held.gate.seen == [1, 2]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_an_abandoned_request_is_never_computed(how: str) -> None:
    held = GatedPlane(queue_size=8)
    async with busy(held) as (opened, running):
        gone = infer(opened)(request_of(np.array([[2]], np.uint8)), timeout=2 if how == "deadline" else None)
        await held.queued(1)
        if how == "cancel":
            gone.cancel()
            assert await gone.code() is grpc.StatusCode.CANCELLED
        else:
            assert await gone.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await held.queued(0)
        held.gate.open()
        assert (await running).raw_output_contents == [b"\1"]
        assert (await infer(opened)(request_of(np.array([[4]], np.uint8)))).raw_output_contents == [b"\4"]
        text = await held.plane.scraped()
        reasons = ("canceled",) if how == "cancel" else ("canceled", "deadline")  # depends on which clock expires first
        assert any(f'octet_requests_rejected_total{{reason="{reason}"}} 1.0' in text for reason in reasons)
    assert held.gate.seen == [1, 4]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_the_message_size_is_limited_compressed_or_not(compression: grpc.Compression) -> None:
    plane = DataPlane(sample_tables(), max_predict_bytes=1 << 20)
    large = request_of(np.zeros((1, 2 << 20), np.uint8), "large")
    async with channel(plane, options=[("grpc.max_send_message_length", -1)]) as opened:
        answer = await infer(opened)(request_of(np.zeros((1, 224, 224, 3), np.uint8), "large"), compression=compression)
        assert answer.raw_output_contents == [bytes(224 * 224 * 3)]
        for how, code in (
            (compression, grpc.StatusCode.INVALID_ARGUMENT),  # clients do not retry after this status
            (grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(AioRpcError) as caught:
                await infer(opened)(large, compression=how)
            assert caught.value.code() is code


async def test_requests_are_counted_by_protocol() -> None:
    plane = DataPlane(sample_tables())
    async with channel(plane) as opened:
        await infer(opened)(request_of(np.zeros((1, 4), np.int8), "int8"))
        text = await plane.scraped()
    (line,) = (line for line in text.splitlines() if line.startswith("octet_requests_total{"))
    assert 'protocol="grpc"' in line
    assert 'code="OK"' in line
    assert line.endswith(" 1.0")


async def test_an_error_ends_its_request_and_not_the_stream() -> None:
    async def requests() -> AsyncIterator[pb.ModelInferRequest]:
        for array in (np.array([[1, 2, 3, 4]], np.int8), np.zeros((1, 5), np.int8), np.array([[5, 6, 7, 8]], np.int8)):
            yield request_of(array, "int8")

    async with channel(DataPlane(sample_tables())) as opened:
        first, second, third = [answer async for answer in stream(opened)(requests())]
    assert first.infer_response.raw_output_contents == [bytes([1, 2, 3, 4])]
    assert "has shape [1, 5]" in second.error_message
    assert third.infer_response.raw_output_contents == [bytes([5, 6, 7, 8])]


async def test_health() -> None:
    async with channel(DataPlane(sample_tables())) as opened:
        health = HealthStub(opened)
        for service in ("", NAME):
            answer = await health.Check(HealthCheckRequest(service=service))
            assert answer.status == HealthCheckResponse.SERVING
        with pytest.raises(AioRpcError) as caught:
            await health.Check(HealthCheckRequest(service="cats"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_stop_ends_watches_and_idle_streams_but_not_requests() -> None:
    held = GatedPlane(queue_size=8)
    plane = held.plane
    lifespan = plane.lifespan()
    await lifespan.__aenter__()
    async with grpc.aio.insecure_channel(plane.grpc) as opened:
        watch = HealthStub(opened).Watch(HealthCheckRequest())
        assert (await watch.read()).status == HealthCheckResponse.SERVING
        idle = stream(opened)()
        await idle.write(request_of(np.zeros((1, 1), np.uint8)))
        assert (await idle.read()).infer_response.raw_output_contents == [b"\0"]
        running = infer(opened)(request_of(np.array([[1]], np.uint8)))
        await held.gate.running()
        began_s = time.monotonic()
        ending = asyncio.ensure_future(lifespan.__aexit__(None, None, None))
        assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        # the server may have sent something that the client did not read
        with pytest.raises(AioRpcError, match="the server is stopping"):
            await idle.read()
        assert await idle.code() is grpc.StatusCode.UNAVAILABLE
        held.gate.open()
        assert (await running).raw_output_contents == [b"\1"]
        await ending
    assert time.monotonic() - began_s < GIVE_UP_S
