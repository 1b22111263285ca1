"""Cuts random pieces out of TFLite files that TensorFlow's converter wrote. They contain forms that no generator draws.

The files are those of this repository, and those in `../shared/data` if that folder exists.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.fuzz.graphs.graph import OMITTED, Graph, Operator, Quantization, Rng, Tensor
from tests.support import shared_data

_ROOT = Path(__file__).parents[3]
_FOLDERS = (_ROOT / "examples", _ROOT / "tests/fixtures/tflite", shared_data.ROOT / "models/tflite")
_MOST_BYTES = 8 << 20  # limit of a file; a larger file takes as long as a hundred others
_NAMES = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
_DTYPES = {
    schema.TensorType.FLOAT32: "float32",
    schema.TensorType.INT32: "int32",
    schema.TensorType.UINT8: "uint8",
    schema.TensorType.INT64: "int64",
    schema.TensorType.BOOL: "bool",
    schema.TensorType.INT16: "int16",
    schema.TensorType.INT8: "int8",
}


def random_graph(rng: Rng, most: int = 6) -> Graph:
    """Returns up to `most` consecutive operators of one file."""
    files = whole_graphs()
    whole = files[int(rng.integers(len(files)))]
    readers: dict[str, list[int]] = {}
    for index, operator in enumerate(whole.operators):
        for name in operator.inputs:
            readers.setdefault(name, []).append(index)
    chosen = {int(rng.integers(len(whole.operators)))}
    for _ in range(int(rng.integers(most))):
        following = [
            index for each in chosen for name in whole.operators[each].outputs for index in readers.get(name, ())
        ]
        following = [index for index in following if index not in chosen]
        if following:
            chosen.add(int(rng.choice(following)))
    return piece(whole, sorted(chosen))


def piece(whole: Graph, indices: list[int]) -> Graph:
    """Returns the operators at `indices` as a graph. Results of other operators become its inputs."""
    operators = tuple(whole.operators[index] for index in indices)
    made = {name for operator in operators for name in operator.outputs}
    read = {name for operator in operators for name in operator.inputs if name != OMITTED}
    inputs = tuple(name for name in sorted(read - made) if whole.tensors[name].data is None)
    outputs = tuple(name for operator in operators for name in operator.outputs if name not in read)
    tensors = {name: tensor for name, tensor in whole.tensors.items() if name in read | made}
    return Graph("tflite", tensors, operators, inputs, outputs)


@cache
def whole_graphs() -> tuple[Graph, ...]:
    """Returns those files that have one subgraph and only operator types that the writer supports."""
    paths = sorted(path for folder in _FOLDERS for path in folder.glob("*.tflite"))
    graphs = [graph_of(path.read_bytes()) for path in paths if path.stat().st_size <= _MOST_BYTES]
    return tuple(graph for graph in graphs if graph is not None and graph.operators)


def graph_of(data: bytes) -> Graph | None:
    """Reads a file. Returns None if it has several subgraphs."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    if len(model.subgraphs) != 1:
        return None
    (graph,) = model.subgraphs
    tensors = {f"t{index}": _tensor(model, tensor) for index, tensor in enumerate(graph.tensors)}
    known = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    operators = []
    for operator in graph.operators or []:
        code = model.operatorCodes[operator.opcodeIndex]
        name = _NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
        inputs, outputs = (
            [OMITTED if i < 0 else f"t{i}" for i in indices] for indices in (operator.inputs, operator.outputs)
        )
        is_variable = any(graph.tensors[index].isVariable for index in operator.inputs if index >= 0)
        if name != "CUSTOM" and not is_variable and all(end in known or end == OMITTED for end in (*inputs, *outputs)):
            operators.append(Operator(name, tuple(inputs), tuple(outputs), _options(operator.builtinOptions)))
    return Graph("tflite", known, tuple(operators), (), ())


def _tensor(model: Any, tensor: Any) -> Tensor | None:
    dtype = _DTYPES.get(tensor.type)
    if dtype is None or tensor.sparsity is not None:
        return None
    shape = tuple(int(size) for size in (tensor.shape if tensor.shape is not None else ()))
    content = model.buffers[tensor.buffer].data
    data: Array | None = None
    if content is not None and len(content):
        data = np.frombuffer(bytes(content), dtype).reshape(shape)
    elif 0 in shape:
        data = np.zeros(shape, dtype)
    return Tensor(shape, dtype, _quantization(tensor.quantization), data)


def _quantization(quantization: Any) -> Quantization | None:
    if quantization is None or quantization.scale is None or not len(quantization.scale):
        return None
    points = np.broadcast_to(quantization.zeroPoint, len(quantization.scale))
    return Quantization(
        tuple(map(float, quantization.scale)), tuple(map(int, points)), int(quantization.quantizedDimension)
    )


def _options(table: Any) -> dict[str, Any]:
    if table is None:
        return {}
    return {"table": type(table).__name__, **vars(table)}
