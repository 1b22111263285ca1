"""One request to a worker of each pool, and whether their answers are the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from operator import ne
from typing import Literal

from service.core.errors import NotReady, OctetError
from service.core.worker import Worker

_KEY, _HEADER_LENGTH = "octet-cluster-key", "inference-header-content-length"
_ANSWER_S = 60.0  # it may have to load the model
# Integers of as many bits as an element has; elements of other types have 8.
_FORMATS: Mapping[str, Literal["H", "I", "Q"]] = {"INT16": "H", "UINT16": "H", "INT32": "I", "FP32": "I", "INT64": "Q"}

Outputs = Mapping[str, "Output"]


@dataclass(frozen=True)
class Output:
    """A tensor of an answer.

    Attributes:
        elements: in C order; integers of the same bits where the answer was binary, their text where it was JSON.
    """

    datatype: str
    shape: tuple[int, ...]
    elements: Sequence[object]


@dataclass(frozen=True)
class Difference:
    """An output that is another than the reference's.

    Attributes:
        different: how many elements are; None where their number or type is another, or one is not there.
        first: the number of the first of them in C order; None likewise.
    """

    output: str
    different: int | None = None
    first: int | None = None


@dataclass(frozen=True)
class Answer:
    """Of a worker: outputs by name, or the reason why there are none."""

    worker: Worker
    outputs: Outputs | None = None
    problem: str = ""


def ask_all(
    workers: Sequence[Worker], path: str, headers: Mapping[str, str], body: bytes, cluster_key: str, most_bytes: int
) -> list[Answer]:
    """Sends the same request to each of the workers at the same time. Blocks.

    Args:
        most_bytes: of an answer; a longer one is none.
    """

    def ask(worker: Worker) -> Answer:
        try:
            return Answer(worker, _outputs(worker, path, {**headers, _KEY: cluster_key}, body, most_bytes))
        except OctetError as error:
            return Answer(worker, problem=error.message)

    with ThreadPoolExecutor(max(1, len(workers)), "octet-compare") as threads:
        return list(threads.map(ask, workers))


def differences(reference: Outputs, other: Outputs) -> list[Difference]:
    """Of each output that is not the same bytes, where it differs."""
    names = dict.fromkeys([*reference, *other])
    found = [_difference(name, reference.get(name), other.get(name)) for name in names]
    return [each for each in found if each is not None]


def _difference(name: str, one: Output | None, other: Output | None) -> Difference | None:
    if one == other:
        return None
    if one is None or other is None or (one.datatype, one.shape) != (other.datatype, other.shape):
        return Difference(name)
    if len(one.elements) != len(other.elements):
        return Difference(name)
    unlike = list(map(ne, one.elements, other.elements))
    return Difference(name, sum(unlike), unlike.index(True))


def _outputs(worker: Worker, path: str, headers: Mapping[str, str], body: bytes, most_bytes: int) -> Outputs:
    """Raises `NotReady`: it did not answer, or not with a prediction."""
    host, _, port = (worker.address or "").rpartition(":")
    try:
        with closing(HTTPConnection(host.strip("[]"), int(port), timeout=_ANSWER_S)) as connection:
            connection.request("POST", path, body, dict(headers))
            response = connection.getresponse()
            answer = response.read(most_bytes + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"it cannot be reached at {worker.address}: {error or type(error).__name__}") from error
    if len(answer) > most_bytes:
        raise NotReady(f"its answer has more than {most_bytes} bytes")
    try:
        return _read(response, answer)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotReady("its answer is none of the Open Inference Protocol") from error


def _read(response: HTTPResponse, answer: bytes) -> Outputs:
    header_bytes = int(response.headers.get(_HEADER_LENGTH, len(answer)))
    said = json.loads(answer[:header_bytes])
    if response.status != 200:
        raise NotReady(str(said["detail"]))
    found, rest = {}, memoryview(answer)[header_bytes:]
    for output in said["outputs"]:
        size_bytes, datatype = output.get("parameters", {}).get("binary_data_size"), str(output["datatype"])
        elements: Sequence[object]
        if size_bytes is None:
            elements = tuple(map(json.dumps, output["data"]))
        elif 0 <= size_bytes <= len(rest):
            elements, rest = rest[:size_bytes].cast(_FORMATS.get(datatype, "B")), rest[size_bytes:]
        else:
            raise ValueError(f"{size_bytes} bytes are not there")
        found[str(output["name"])] = Output(datatype, tuple(map(int, output["shape"])), elements)
    return found
