"""TFLite models that keep state: an LSTM, an SVDF, and resource variables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder, Quant

_TANH, _RELU = 4, 1


def lstm_model(
    *,
    batch: int = 1,
    steps: int = 3,
    depth: int = 5,
    cells: int = 8,
    projected: int = 0,
    cifg: bool = False,
    time_major: bool = False,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    cell_bits: int = 4,
    hidden_zero_point: int = 3,
    seed: int = 0,
) -> bytes:
    """Returns an LSTM.

    Args:
        projected: the width of the projection; 0 for none.
        cell_bits: the scale of the cells is 2 ** (cell_bits - 15).
    """
    rng = np.random.default_rng(seed)
    builder = ModelBuilder()
    width = projected or cells
    ends = (steps, batch) if time_major else (batch, steps)
    output = Quant(1 / 128, -5)
    hidden = output if not projected else Quant(1 / 100, hidden_zero_point)

    def weights(name: str, *shape: int) -> int:
        data = rng.integers(-127, 128, shape, np.int8)
        return builder.constant(name, data, Quant(float(rng.uniform(0.5, 1.5)) / 90))

    def bias(name: str, count: int) -> int:
        return builder.constant(name, rng.integers(-4000, 4000, count, np.int32), Quant(1e-4))

    gates = range(1 if cifg else 0, 4)
    positions = [-1] * 24
    positions[0] = builder.tensor("x", (*ends, depth), np.int8, Quant(1 / 60, 11))
    for gate in gates:
        positions[1 + gate] = weights(f"input_{gate}", cells, depth)
        positions[5 + gate] = weights(f"recurrent_{gate}", cells, width)
        positions[12 + gate] = bias(f"bias_{gate}", cells)
    if projected:
        positions[16], positions[17] = weights("projection", projected, cells), bias("projection_bias", projected)
    positions[18] = builder.variable("hidden", (batch, width), np.int8, output)
    positions[19] = builder.variable("cell", (batch, cells), np.int16, Quant(2.0 ** (cell_bits - 15)))
    y = builder.tensor("y", (*ends, width), np.int8, output)
    options = schema.UnidirectionalSequenceLSTMOptionsT(
        fusedActivationFunction=_TANH, cellClip=cell_clip, projClip=proj_clip, timeMajor=time_major
    )
    builder.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", positions, [y], options, version=3)
    kept = [builder.tensor(f"gate_{index}", (1,), np.int16, Quant(2.0**-12)) for index in range(4)]
    kept.append(builder.tensor("shown", (1,), np.int8, hidden))
    builder.graph.operators[-1].intermediates = np.array(kept, np.int32)
    return builder.build([positions[0]], [y])


def svdf_model(
    *, batch: int = 1, depth: int = 6, units: int = 4, rank: int = 2, memory: int = 5, bias: bool = True, seed: int = 0
) -> bytes:
    rng = np.random.default_rng(seed)
    builder = ModelBuilder()
    filters = units * rank
    x = builder.tensor("x", (batch, depth), np.int8, Quant(1 / 50, -9))
    feature = builder.constant("feature", rng.integers(-127, 128, (filters, depth), np.int8), Quant(0.01))
    time = builder.constant("time", rng.integers(-3000, 3000, (filters, memory), np.int16), Quant(1 / 4096))
    added = builder.constant("bias", rng.integers(-90000, 90000, units, np.int32), Quant(1e-6)) if bias else -1
    state = builder.variable("state", (batch, filters * memory), np.int16, Quant(1 / 2048))
    y = builder.tensor("y", (batch, units), np.int8, Quant(1 / 16, -20))
    options = schema.SVDFOptionsT(rank=rank, fusedActivationFunction=_RELU)
    builder.operator("SVDF", [x, feature, time, added, state], [y], options, version=3)
    return builder.build([x], [y])


def variable_model(initial: Array, quant: Quant, *, shared_name: str = "memory") -> bytes:
    """Returns a model that computes y = x + memory, and then appends x to memory as its newest row.

    The memory is a resource variable, `[N, C]` int8.
    """
    builder = ModelBuilder()
    x = builder.tensor("x", (1, initial.shape[1]), np.int8, quant)
    handle = builder.resource("handle")
    past = builder.tensor("past", initial.shape, np.int8, quant)
    builder.call_once({shared_name: (initial, quant)})
    builder.operator("VAR_HANDLE", [], [handle], schema.VarHandleOptionsT(sharedName=shared_name))
    builder.operator("READ_VARIABLE", [handle], [past], schema.ReadVariableOptionsT())
    rest = builder.tensor("rest", (initial.shape[0] - 1, initial.shape[1]), np.int8, quant)
    begin, size = (np.array(value, np.int32) for value in ([1, 0], [-1, -1]))
    bounds = [builder.constant("begin", begin), builder.constant("size", size)]
    builder.operator("SLICE", [past, *bounds], [rest], schema.SliceOptionsT(), version=2)
    shifted = builder.tensor("shifted", initial.shape, np.int8, quant)
    builder.operator("CONCATENATION", [rest, x], [shifted], schema.ConcatenationOptionsT(axis=0))
    builder.operator("ASSIGN_VARIABLE", [handle, shifted], [], schema.AssignVariableOptionsT())
    y = builder.tensor("y", initial.shape, np.int8, Quant(float(quant.scale_array[0]) * 2, 1))
    builder.operator("ADD", [past, x], [y], schema.AddOptionsT())
    return builder.build([x], [y])


def echo_model(initial: Array, quant: Quant) -> bytes:
    """Returns a model that stores its input in a variable. It outputs the previous input, and the sum of the previous
    and the current one.
    """
    builder = ModelBuilder()
    x = builder.tensor("x", initial.shape, np.int8, quant)
    handle = builder.resource("handle")
    past = builder.tensor("past", initial.shape, np.int8, quant)
    builder.call_once({"memory": (initial, quant)})
    builder.operator("VAR_HANDLE", [], [handle], schema.VarHandleOptionsT(sharedName="memory"))
    builder.operator("READ_VARIABLE", [handle], [past], schema.ReadVariableOptionsT())
    builder.operator("ASSIGN_VARIABLE", [handle, x], [], schema.AssignVariableOptionsT())
    y = builder.tensor("y", initial.shape, np.int8, Quant(float(quant.scale_array[0]) * 2, 1))
    builder.operator("ADD", [past, x], [y], schema.AddOptionsT())
    return builder.build([x], [y, past])


FIRST = np.random.default_rng(0).integers(-128, 128, (4, 5), np.int8)

MODELS: dict[str, Callable[[], bytes]] = {
    "lstm": lstm_model,
    "lstm, one step": partial(lstm_model, steps=1, projected=4, cell_clip=0.5),
    "lstm without input gate, one step": partial(lstm_model, batch=2, steps=1, cifg=True),
    "lstm of a batch": partial(lstm_model, batch=3),
    "lstm, time first": partial(lstm_model, batch=3, time_major=True),
    "lstm without input gate": partial(lstm_model, cifg=True),
    "lstm, projected": partial(lstm_model, projected=4),
    "lstm, projected and without input gate": partial(lstm_model, projected=6, cifg=True, hidden_zero_point=-127),
    "lstm, projected from the end": partial(lstm_model, projected=6, hidden_zero_point=127),
    "lstm, clipped": partial(lstm_model, projected=4, proj_clip=0.3, cell_clip=0.5),
    "svdf": svdf_model,
    "svdf of a batch, without bias": partial(svdf_model, batch=2, bias=False),
    "svdf of rank 1": partial(svdf_model, rank=1, memory=8),
    "svdf without a past": partial(svdf_model, memory=1),
    "variable": partial(variable_model, FIRST, Quant(0.1, 3)),
    "variable that an input becomes": partial(echo_model, FIRST, Quant(0.1, 3)),
}
