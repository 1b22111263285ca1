"""Sends one request to a worker of each pool, and compares the bytes of their outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Literal

from service.core.cluster.worker import Worker
from service.core.errors import NotReady, OctetError
from service.workers.routing.asking import Response, map_workers, post
from service.workers.routing.security import Security

_HEADER_LENGTH = "inference-header-content-length"
# Maps a datatype to the unsigned integer format of the same size, as in `struct`. Datatypes that are missing have 8
# bits.
_FORMATS: Mapping[str, Literal["H", "I", "Q"]] = {
    **dict.fromkeys(("FP16", "INT16", "UINT16"), "H"),
    **dict.fromkeys(("FP32", "INT32"), "I"),
    **dict.fromkeys(("FP64", "INT64"), "Q"),
}

Outputs = Mapping[str, "Output"]


@dataclass(frozen=True)
class Output:
    """An output tensor of a response.

    Attributes:
        elements: the elements in C order: integers with the same bits if the response was binary, their text if it was
            JSON.
    """

    datatype: str
    shape: tuple[int, ...]
    elements: Sequence[object]


@dataclass(frozen=True)
class Difference:
    """An output that differs from the reference's output.

    Attributes:
        different: the number of differing elements. None if the shapes or the types differ, or if one output is
            missing.
        first: the index in C order of the first differing element. None in the same cases.
    """

    output: str
    different: int | None = None
    first: int | None = None


@dataclass(frozen=True)
class Answer:
    """The answer of a worker: its outputs by name, or the reason why it returned none."""

    worker: Worker
    outputs: Outputs | None = None
    problem: str = ""


def ask_all(
    workers: Sequence[Worker], path: str, headers: Mapping[str, str], body: bytes, security: Security, most_bytes: int
) -> list[Answer]:
    """Sends the same request to each of the workers at the same time. Blocks.

    Args:
        most_bytes: the maximum size of a response; a larger one is an error.
    """

    def ask(worker: Worker) -> Answer:
        try:
            return Answer(worker, _outputs(worker, path, headers, body, security, most_bytes))
        except OctetError as error:
            return Answer(worker, problem=error.message)

    return map_workers(workers, ask)


def differences(reference: Outputs, other: Outputs) -> list[Difference]:
    """Returns where each output differs. Outputs with the same bytes are left out."""
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


def _outputs(
    worker: Worker, path: str, headers: Mapping[str, str], body: bytes, security: Security, most_bytes: int
) -> Outputs:
    """Returns the outputs of a prediction. Raises `NotReady` if the worker does not respond with a prediction."""
    response = post(worker, path, headers, body, security, most_bytes)
    try:
        return _read(response)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotReady("its response does not conform to the Open Inference Protocol") from error


def _read(response: Response) -> Outputs:
    answer = response.body
    header_bytes = int(response.headers.get(_HEADER_LENGTH, len(answer)))
    message = json.loads(answer[:header_bytes])
    if response.status != 200:
        raise NotReady(str(message["detail"]))
    found, rest = {}, memoryview(answer)[header_bytes:]
    for output in message["outputs"]:
        size_bytes, datatype = output.get("parameters", {}).get("binary_data_size"), str(output["datatype"])
        elements: Sequence[object]
        if size_bytes is None:
            elements = tuple(map(json.dumps, output["data"]))
        elif 0 <= size_bytes <= len(rest):
            elements, rest = rest[:size_bytes].cast(_FORMATS.get(datatype, "B")), rest[size_bytes:]
        else:
            raise ValueError(f"{size_bytes} bytes are missing")
        found[str(output["name"])] = Output(datatype, tuple(map(int, output["shape"])), elements)
    return found
