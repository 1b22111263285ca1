"""Long gRPC streams, and clients that do not read their responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from service.api.grpc import inference_pb2 as pb
from tests.support.http2_frames import DATA, END_STREAM, HEADERS, WINDOW_UPDATE, Peer, frame, message
from tests.support.plane_models import WIDE, bare_plane, wide
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import WORK_TIMEOUT_S

# limit of message bytes; it exceeds the responses that a slow reader may leave unread
TOTAL = 8 << 20
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[PlaneProcess]:
    peers = {"max_connections": 100, "max_calls": 100, "max_message_bytes": TOTAL, "share": 0.75}
    with bare_plane(tmp_path, [wide(tmp_path, 1)], peers=peers) as process:
        yield process


def stream(channel: grpc.Channel) -> Callable[..., Iterator[pb.ModelStreamInferResponse]]:
    call: Callable[..., Iterator[pb.ModelStreamInferResponse]] = channel.stream_stream(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )
    return call


def test_a_stream_occupies_only_its_requests_in_progress(served: PlaneProcess) -> None:
    """The messages and responses of the stream together are several times the limit of a client."""
    values = np.arange(WIDE, dtype=np.int32)
    request = pb.ModelInferRequest(model_name="wide", raw_input_contents=[values.tobytes()])
    request.inputs.add(name="in0", datatype="INT32", shape=[1, WIDE])
    count = 4 * TOTAL // values.nbytes
    with grpc.insecure_channel(served.grpc) as channel:
        answers = list(stream(channel)(iter([request] * count), timeout=WORK_TIMEOUT_S))
    assert len(answers) == count
    assert all(each.infer_response.raw_output_contents[0] == (2 * values).tobytes() for each in answers)


def test_a_message_for_an_unknown_model_is_not_counted_for_the_model_before_it(served: PlaneProcess) -> None:
    request = pb.ModelInferRequest(model_name="wide", raw_input_contents=[bytes(4 * WIDE)])
    request.inputs.add(name="in0", datatype="INT32", shape=[1, WIDE])
    with grpc.insecure_channel(served.grpc) as channel:
        requests = [request, pb.ModelInferRequest(model_name="unknown")]
        first, second = stream(channel)(iter(requests), timeout=WORK_TIMEOUT_S)
        assert (first.error_message, second.error_message != "") == ("", True)
        statistics = channel.unary_unary("/inference.GRPCInferenceService/ModelStatistics")
        question = pb.ModelStatisticsRequest(name="wide").SerializeToString()
        (counted,) = pb.ModelStatisticsResponse.FromString(statistics(question)).model_stats
    assert (counted.inference_stats.success.count, counted.inference_stats.fail.count) == (1, 0)


def test_a_client_that_is_always_one_response_late_occupies_no_more_than_that(served: PlaneProcess) -> None:
    """The memory of sent data is released even if some data is always unsent."""
    question = message(ServerReflectionRequest(file_by_filename="inference.proto").SerializeToString())
    head = [(":method", "POST"), (":scheme", "http"), (":path", REFLECTION), (":authority", "test")]
    with Peer(int(served.grpc.rpartition(":")[2])) as peer:
        peer.headers(1, [*head, ("content-type", "application/grpc"), ("te", "trailers")])
        count = 50  # the responses of these requests are longer than the window
        peer.send(frame(DATA, 0, 1, question * count))
        first = peer.expect(DATA, 1).payload
        answer, received = len(message(b"")) + int.from_bytes(first[1:5]), len(first)
        assert count * answer > 200_000
        while received < 2 * TOTAL:
            piece = len(peer.expect(DATA, 1).payload)
            received += piece
            more = received // answer + 50 - count
            count += more
            window = piece.to_bytes(4)
            again = frame(DATA, 0, 1, question * more)
            peer.send(again + frame(WINDOW_UPDATE, 0, 0, window) + frame(WINDOW_UPDATE, 0, 1, window))


def test_a_client_that_does_not_read_gets_no_more_responses(served: PlaneProcess) -> None:
    """Short requests have long responses, so thousands of requests fit in one window."""
    question = message(ServerReflectionRequest(file_by_filename="inference.proto").SerializeToString())
    count = 60_000 // len(question)
    before_kb = served.memory_kb()
    head = [(":method", "POST"), (":scheme", "http"), (":path", REFLECTION), (":authority", "test")]
    with Peer(int(served.grpc.rpartition(":")[2])) as peer:
        peer.headers(1, [*head, ("content-type", "application/grpc"), ("te", "trailers")])
        for _ in range(count // 500):
            peer.send(frame(DATA, 0, 1, question * 500))
        peer.send(frame(DATA, END_STREAM, 1, question * (count % 500)))
        peer.expect(HEADERS, 1)
        received = 0
        while received < 65_535:  # everything that its window allows
            received += len(peer.expect(DATA, 1).payload)
        assert served.memory_kb() - before_kb < 6 << 10


def test_a_client_that_reads_late_gets_all_responses(served: PlaneProcess) -> None:
    requests = [ServerReflectionRequest(file_by_filename="inference.proto")] * 1000
    with grpc.insecure_channel(served.grpc) as channel:
        call = channel.stream_stream(REFLECTION, request_serializer=ServerReflectionRequest.SerializeToString)
        answers = list(call(iter(requests), timeout=WORK_TIMEOUT_S))
    assert len(answers) == len(requests)
    assert len(set(answers)) == 1
