"""Compressed responses for clients that request them, over both protocols."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence

import grpc
import httpx
import numpy as np
import pytest

from service.api.grpc import inference_pb2 as pb
from tests.support.plane_models import LENGTH, WIDE, bare_plane, sleeping, wide
from tests.support.plane_process import PlaneProcess
from tests.support.relay import relay
from tests.support.waiting import GIVE_UP_S

SERVICE = "/inference.GRPCInferenceService"
WANTED = (("accept-encoding", "gzip"),)
SMOOTH = np.zeros((1, WIDE), np.int32)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("compression")
    with bare_plane(folder, [wide(folder, 1), sleeping(folder, 2)]) as process:
        yield process


def request_of(array: np.ndarray[tuple[int, ...], np.dtype[np.int32]], model: str = "wide") -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=[array.tobytes()])
    request.inputs.add(name="in0", datatype="INT32", shape=array.shape)
    return request


def doubled(answer: pb.ModelInferResponse) -> list[int]:
    values: list[int] = np.frombuffer(answer.raw_output_contents[0], np.int32).tolist()
    return values


@pytest.mark.parametrize(
    ("metadata", "is_compressed"),
    [
        (WANTED, True),
        ((("accept-encoding", "deflate, gzip;q=0"),), True),
        ((), False),
        ((("accept-encoding", "br"),), False),
    ],
)
def test_a_call_is_answered_with_the_requested_compression(
    served: PlaneProcess, metadata: tuple[tuple[str, str], ...], is_compressed: bool
) -> None:
    with relay(served.grpc) as between, grpc.insecure_channel(between.address) as channel:
        call = channel.unary_unary(
            f"{SERVICE}/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        answer = call(request_of(SMOOTH + 7), metadata=metadata, timeout=GIVE_UP_S)
    assert doubled(answer) == [14] * WIDE
    assert (len(between.answered) < WIDE) == is_compressed


def test_a_stream_has_compressed_and_uncompressed_messages(served: PlaneProcess) -> None:
    """The first message is an error, which is too short to be compressed."""
    with relay(served.grpc) as between, grpc.insecure_channel(between.address) as channel:
        call = channel.stream_stream(
            f"{SERVICE}/ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        requests = [pb.ModelInferRequest(model_name="other"), *(request_of(SMOOTH + each) for each in range(3))]
        wrong, *answers = call(iter(requests), metadata=WANTED, timeout=GIVE_UP_S)
    assert wrong.error_message
    assert [doubled(each.infer_response) for each in answers] == [[2 * each] * WIDE for each in range(3)]
    assert len(between.answered) < WIDE


@pytest.mark.parametrize(("accepted", "coding"), [("gzip", "gzip"), ("deflate", "deflate"), ("gzip;q=0", None)])
def test_over_http(served: PlaneProcess, accepted: str, coding: str | None) -> None:
    body = {
        "inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, WIDE], "data": [3] * WIDE}],
        "outputs": [{"name": "out0"}],
    }
    with httpx.Client(base_url=served.url) as client:
        for _ in range(2):  # both requests use one connection
            answer = client.post("/v2/models/wide/infer", json=body, headers={"accept-encoding": accepted})
            assert answer.headers.get("content-encoding") == coding
            assert answer.json()["outputs"][0]["data"] == [6] * WIDE


BODY = json.dumps(
    {"inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": [1] * LENGTH}]}
).encode()
MEMBERS = gzip.compress(BODY[:50]) + gzip.compress(BODY[50:])


@pytest.mark.parametrize(
    ("codings", "body"),
    [
        (["gzip"], gzip.compress(BODY)),
        (["x-gzip"], gzip.compress(BODY)),
        (["GZip"], gzip.compress(BODY)),
        (["deflate"], zlib.compress(BODY)),
        (["identity"], BODY),
        (["gzip, identity"], gzip.compress(BODY)),
        (["identity", "gzip"], gzip.compress(BODY)),
        (["gzip"], MEMBERS),
        (["gzip"], 1000 * gzip.compress(b"") + MEMBERS + gzip.compress(b"")),
        (["gzip"], b"".join(gzip.compress(BODY[at : at + 1]) for at in range(len(BODY)))),
    ],
    ids=[
        "gzip",
        "x-gzip",
        "upper case",
        "deflate",
        "identity",
        "with identity",
        "two lines",
        "members",
        "empty",
        "bytes",
    ],
)
def test_a_body_may_be_compressed(served: PlaneProcess, codings: Sequence[str], body: bytes) -> None:
    headers = [("content-encoding", coding) for coding in codings]
    answer = httpx.post(f"{served.url}/v2/models/sleeping/infer", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == [2] * LENGTH


def test_two_codings_on_two_header_lines_are_both_applied(served: PlaneProcess) -> None:
    headers = [("content-encoding", "br"), ("content-encoding", "gzip")]
    refused = httpx.post(f"{served.url}/v2/models/sleeping/infer", content=gzip.compress(BODY), headers=headers)
    assert (refused.status_code, refused.json()["title"]) == (
        415,
        "The data is in a format that is not supported here.",
    )
    assert "content encoding 'br, gzip'" in refused.json()["detail"]


def test_messages_that_wait_for_a_response_use_no_stack(served: PlaneProcess) -> None:
    """One message takes long to compute. Thousands of messages after it are refused at once."""
    long = np.full((1, LENGTH), 3000, np.int32)
    with grpc.insecure_channel(served.grpc) as channel:
        call = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")
        messages = [request_of(long, "sleeping").SerializeToString(), *[b""] * 30_000]
        answers = list(call(iter(messages), timeout=60))
    assert len(answers) == len(messages)
    assert doubled(pb.ModelStreamInferResponse.FromString(answers[0]).infer_response) == [6000] * LENGTH
