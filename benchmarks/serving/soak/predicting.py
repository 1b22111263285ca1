"""Predictions over each protocol and in each encoding; the expected outputs were computed without a server."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import httpx

from benchmarks.harness.predictions import GRPC_INFER, binary_request, grpc_request, infer_path
from benchmarks.serving.soak.actors import REFUSED, Actor, checked, hold
from service.api.grpc.inference_pb2 import ModelInferRequest, ModelInferResponse
from service.core.models.arrays import Array
from service.runtime.protocol import HEADER_LENGTH

_OCTETS = {"Content-Type": "application/octet-stream"}
_ANSWER_S = 60.0


@dataclass(frozen=True)
class Question:
    """A model, the input, and the outputs of the bare call."""

    model: str
    input: str
    datatype: str
    image: Array
    scores: Array

    @property
    def path(self) -> str:
        return infer_path(self.model)

    def hold(self, data: Sequence[int], encoding: str) -> None:
        """Raises `Unexpected` if the first output is wrong."""
        hold(list(data), self.scores.ravel().tolist(), f"{self.model}, {encoding}")


def predictors(client: httpx.Client, channel: grpc.Channel, questions: Sequence[Question]) -> list[Actor]:
    """Returns actors that use the models in turn. The generators send `Question.image` over HTTP as a binary tensor."""
    json_bodies = {question.model: _json(question) for question in questions}
    zipped = {question.model: _zipped(question) for question in questions}
    messages = {question.model: message_of(question).SerializeToString() for question in questions}

    def as_json(question: Question) -> str:
        response = client.post(question.path, content=json_bodies[question.model])
        return _answer(response, question, "JSON")

    def as_raw(question: Question) -> str:
        response = client.post(question.path, content=question.image.tobytes(), headers={HEADER_LENGTH: "0", **_OCTETS})
        return _answer(response, question, "raw")

    def as_gzip(question: Question) -> str:
        body, headers = zipped[question.model]
        return _answer(client.post(question.path, content=body, headers=headers), question, "gzip")

    infer = channel.unary_unary(GRPC_INFER)

    def as_grpc(question: Question) -> str:
        try:
            answer = ModelInferResponse.FromString(infer(messages[question.model], timeout=_ANSWER_S))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return "refused"
            raise
        hold(list(answer.raw_output_contents), [question.scores.tobytes()], f"{question.model}, gRPC")
        return "OK"

    return [
        Actor("JSON", 1.0, _in_turn(as_json, questions)),
        Actor("raw", 0.2, _in_turn(as_raw, questions)),
        Actor("gzip", 0.5, _in_turn(as_gzip, questions)),
        Actor("gRPC", 0.2, _in_turn(as_grpc, questions)),
    ]


def message_of(question: Question) -> ModelInferRequest:
    return grpc_request(question.model, question.input, question.datatype, question.image)


def _in_turn(ask: Callable[[Question], str], questions: Sequence[Question]) -> Callable[[], str]:
    turns: Iterator[Callable[[], str]] = itertools.cycle(partial(ask, question) for question in questions)
    return lambda: next(turns)()


def _answer(response: httpx.Response, question: Question, encoding: str) -> str:
    status = checked(response, 200, REFUSED)
    if response.is_success:
        (output,) = response.json()["outputs"]
        question.hold(output["data"], encoding)
    return status


def _json(question: Question) -> bytes:
    image = question.image
    tensor = {"name": question.input, "datatype": question.datatype, "shape": image.shape, "data": image.tolist()}
    return json.dumps({"id": question.model, "inputs": [tensor]}).encode()


def _zipped(question: Question) -> tuple[bytes, dict[str, Any]]:
    body, headers = binary_request([question.input], [question.image], {"binary_data_output": False})
    return gzip.compress(body), {"Content-Encoding": "gzip", "Accept-Encoding": "gzip", **headers}
