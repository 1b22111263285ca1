"""Tests of a server that is stopped while gRPC clients send requests."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc.aio import AioRpcError, insecure_channel

from service.api.grpc import inference_pb2 as pb
from tests.support.grpc_calls import infer, stream
from tests.support.serving import UPLOAD, Served, connect, serving
from tests.support.waiting import GIVE_UP_S, eventually

pytestmark = pytest.mark.anyio
CALLS = 300


def request(served: Served) -> pb.ModelInferRequest:
    """A black picture for the model `digits`."""
    (spec,) = served.client.get("/v2/models/digits").json()["inputs"]
    message = pb.ModelInferRequest(model_name="digits", raw_input_contents=[bytes(np.prod(spec["shape"]))])
    message.inputs.add(name=spec["name"], datatype=spec["datatype"], shape=spec["shape"])
    return message


async def code_of(call: Any) -> grpc.StatusCode:
    """Returns the status with which a call ended."""
    try:
        await call
    except AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_calls_in_progress_end_and_others_get_unavailable(tmp_path: Path) -> None:
    with serving(tmp_path, grace_s=600, stall_timeout_s=6000, queue_size=2 * CALLS) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        message = request(served)
        async with insecure_channel(served.grpc) as channel:
            open_stream = stream(channel)()
            await open_stream.write(message)
            answer = (await open_stream.read()).infer_response.raw_output_contents
            ends = [asyncio.ensure_future(code_of(infer(channel)(message))) for _ in range(CALLS)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            served.process.send_signal(signal.SIGTERM)
            with pytest.raises(AioRpcError, match="stopping"):
                await open_stream.read()
            assert await open_stream.code() is grpc.StatusCode.UNAVAILABLE
            codes = await asyncio.gather(*ends)
            assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
            # more than the first: the calls in progress were answered
            assert codes.count(grpc.StatusCode.OK) > CALLS // 10
            # calls may still succeed for a moment
            while (code := await code_of(infer(channel)(message))) is grpc.StatusCode.OK:
                assert served.process.poll() is None
            assert code is grpc.StatusCode.UNAVAILABLE
        assert len(answer) == 1
        assert await asyncio.to_thread(served.process.wait, GIVE_UP_S) == 0


@pytest.mark.slow
async def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, grace_s=600, stall_timeout_s=600) as served, connect(served) as slow:
        slow.sendall(UPLOAD)  # a body that never ends
        eventually(lambda: any((tmp_path / "data" / "store").glob("uploads/*")))
        async with insecure_channel(served.grpc) as channel:
            open_stream = stream(channel)()
            await channel.channel_ready()
            served.process.send_signal(signal.SIGTERM)
            assert await open_stream.code() is grpc.StatusCode.UNAVAILABLE
            assert served.process.poll() is None  # the other client still has time to finish its request
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(served.process.wait, GIVE_UP_S) == 128 + signal.SIGTERM
            assert await code_of(infer(channel)(pb.ModelInferRequest())) is grpc.StatusCode.UNAVAILABLE
