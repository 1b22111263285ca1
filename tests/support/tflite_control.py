"""TFLite models whose operators run subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder

F, I32, BOOL = np.float32, np.int32, np.bool_
Body = Callable[[ModelBuilder, list[int]], Sequence[int]]


def add_subgraph(builder: ModelBuilder, ends: Sequence[tuple[Sequence[int], Any]], body: Body) -> int:
    """Adds a subgraph with inputs of these shapes and types, and returns its number."""
    with builder.subgraph() as graph:
        graph.inputs = [builder.tensor(f"in{index}", *end) for index, end in enumerate(ends)]
        graph.outputs = body(builder, graph.inputs)
    return next(number for number, each in enumerate(builder.model.subgraphs) if each is graph)


def binary(name: str, value: Array, result: Any = None, options: Any = None) -> Body:
    """Returns a subgraph that computes an operator of its last input and a constant."""

    def body(builder: ModelBuilder, inputs: list[int]) -> list[int]:
        shape = builder.graph.tensors[inputs[-1]].shape
        made = builder.tensor("made", shape, result or value.dtype)
        builder.operator(name, [inputs[-1], builder.constant("value", value)], [made], options)
        return [made]

    return body


ADD = binary("ADD", np.array([1, 2, 3], F), options=schema.AddOptionsT())
MUL = binary("MUL", np.array([2, 3, 4], F), options=schema.MulOptionsT())


def branches(shape: Sequence[int], *, known: bool | None = None, one: Body = ADD, other: Body = MUL) -> bytes:
    """Returns IF on a condition of `shape`. `known` is its value if it is a constant."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (2, 3), F), builder.tensor("y", (2, 3), F)
    condition = builder.tensor("c", shape, BOOL)
    given = [condition, x]
    if known is not None:
        condition, given = builder.constant("known", np.full(shape, known)), [x]
    numbers = [add_subgraph(builder, [((2, 3), F)], body) for body in (one, other)]
    builder.operator("IF", [condition, x], [y], schema.IfOptionsT(*numbers))
    return builder.build(given, [y])


def called(name: str = "STABLEHLO_COMPOSITE") -> bytes:
    """Returns an operator that runs a subgraph, which runs another one."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (2, 3), F), builder.tensor("y", (2, 3), F)
    inner = add_subgraph(builder, [((2, 3), F)], ADD)

    def outer(builder: ModelBuilder, inputs: list[int]) -> list[int]:
        (made,) = MUL(builder, inputs)
        last = builder.tensor("last", (2, 3), F)
        _run(builder, name, [made], [last], inner)
        return [last]

    _run(builder, name, [x], [y], add_subgraph(builder, [((2, 3), F)], outer))
    return builder.build([x], [y])


def _run(builder: ModelBuilder, name: str, inputs: list[int], outputs: list[int], number: int) -> None:
    options = schema.CallOptionsT(number)
    if name == "STABLEHLO_COMPOSITE":
        options = schema.StableHLOCompositeOptionsT(
            name="octet.part", decompositionSubgraphIndex=number, compositeAttributes=np.zeros(4, np.uint8)
        )
    builder.operator(name, inputs, outputs, options)


def loop(turns: int | None, *, bound: float | None = None) -> bytes:
    """Returns WHILE: adds 1, 2, 3 to each row for a number of turns, or for as many turns as an input asks for if
    `turns` is None. If `bound` is given, the loop also ends when an element is greater.
    """
    builder = ModelBuilder()
    ends: list[tuple[tuple[int, ...], Any]] = [((), I32), ((), I32), ((2, 3), F)]
    first, x = builder.constant("first", np.array(0, I32)), builder.tensor("x", (2, 3), F)
    limit = builder.tensor("n", (), I32) if turns is None else builder.constant("n", np.array(turns, I32))
    made = [builder.tensor("i", (), I32), builder.tensor("limit", (), I32), builder.tensor("y", (2, 3), F)]

    def condition(builder: ModelBuilder, inputs: list[int]) -> list[int]:
        less = builder.tensor("less", (), BOOL)
        builder.operator("LESS", inputs[:2], [less])
        if bound is None:
            return [less]
        largest, small, both = (
            builder.tensor("max", (), F),
            builder.tensor("small", (), BOOL),
            builder.tensor("both", (), BOOL),
        )
        axes = builder.constant("axes", np.array([0, 1], I32))
        builder.operator("REDUCE_MAX", [inputs[2], axes], [largest], schema.ReducerOptionsT())
        builder.operator("LESS", [largest, builder.constant("bound", np.array(bound, F))], [small])
        builder.operator("LOGICAL_AND", [small, less], [both])
        return [both]

    def body(builder: ModelBuilder, inputs: list[int]) -> list[int]:
        following = builder.tensor("following", (), I32)
        one = builder.constant("one", np.array(1, I32))
        builder.operator("ADD", [inputs[0], one], [following], schema.AddOptionsT())
        return [following, inputs[1], *ADD(builder, inputs)]

    numbers = [add_subgraph(builder, ends, each) for each in (condition, body)]
    builder.operator("WHILE", [first, limit, x], made, schema.WhileOptionsT(*numbers))
    return builder.build([limit, x] if turns is None else [x], [made[2], made[0]])


def endless() -> bytes:
    """Returns a subgraph that runs itself."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (2, 3), F), builder.tensor("y", (2, 3), F)

    def body(builder: ModelBuilder, inputs: list[int]) -> list[int]:
        made = builder.tensor("made", (2, 3), F)
        _run(builder, "CALL", inputs, [made], 1)
        return [made]

    _run(builder, "CALL", [x], [y], add_subgraph(builder, [((2, 3), F)], body))
    return builder.build([x], [y])


def two_entries(*, shared: bool = False) -> bytes:
    """Returns a file with the signatures add (the first subgraph), multiply and again, which is the first one, too. If
    `shared` is true, an operator of the first subgraph runs the second one.
    """
    builder = ModelBuilder()
    x = builder.tensor("x", (2, 3), F)
    number = add_subgraph(builder, [((2, 3), F)], MUL)
    (y,) = ADD(builder, [x])
    if shared:
        z = builder.tensor("z", (2, 3), F)
        builder.operator("CALL", [y], [z], schema.CallOptionsT(number))
    builder.signature({"a": x}, {"b": y}, "add")
    builder.signature({"c": 0}, {"d": 1}, "multiply")
    builder.signature({"e": x}, {"f": y}, "again")
    graph = builder.model.subgraphs[number]
    signature = builder.model.signatureDefs[1]
    signature.subgraphIndex = number
    signature.inputs[0].tensorIndex, signature.outputs[0].tensorIndex = graph.inputs[0], graph.outputs[0]
    return builder.build([x], [y])
