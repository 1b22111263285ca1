"""The delegate's header and constants lie inside of its data."""

from __future__ import annotations

import struct

import pytest

from service.compiler.importers.executorch.file.delegate import read_graph
from service.compiler.importers.executorch.file.reader import read_plan
from service.core.errors import MalformedModel, Unsupported
from tests.support.executorch_programs import program

PLAN = read_plan(program("dense"))
DATA = bytes(PLAN.delegates[0].data)


def test_operators_and_constants_are_read() -> None:
    graph = read_graph(memoryview(DATA), PLAN.named)
    assert [operator.name for operator in graph.operators] == [
        "Convert",
        "FullyConnected",
        "FullyConnected",
        "Convert",
    ]
    weights = [tensor for tensor in graph.tensors.values() if tensor.data is not None and tensor.data.ndim == 2]
    assert [tensor.shape for tensor in weights] == [(32, 20), (7, 32)]
    assert [len(tensor.scales.scales) for tensor in weights if tensor.scales is not None] == [32, 7]


@pytest.mark.parametrize(("position", "value"), [(10, 1 << 30), (14, 1 << 30), (18, 1 << 30)])
def test_a_header_that_refers_outside_is_malformed(position: int, value: int) -> None:
    changed = DATA[:position] + struct.pack("<I", value) + DATA[position + 4 :]
    with pytest.raises(MalformedModel):
        read_graph(memoryview(changed), PLAN.named)


def test_constants_of_another_file_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"in another file \(\.ptd\)"):
        read_graph(memoryview(DATA), {})


def test_a_constant_that_is_too_short_is_malformed() -> None:
    short = {key: data[:4] for key, data in PLAN.named.items()}
    with pytest.raises(MalformedModel, match="needs 640 bytes, but only 4 are stored"):
        read_graph(memoryview(DATA), short)


def test_another_identifier_is_malformed() -> None:
    with pytest.raises(MalformedModel, match="has the identifier"):
        read_graph(memoryview(b"\0\0\0\0XN99"), {})
