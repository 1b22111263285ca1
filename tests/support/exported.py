"""Exported programs of PyTorch for tests without PyTorch: the fixtures, and archives that this module writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.torch.exported import import_exported
from tests.support.torchscript import FOLDER, archive

FIXTURES = sorted(FOLDER.glob("*.pt2"))
_DTYPES = {"uint8": 1, "int8": 2, "int64": 5, "float32": 7}


def imported(path: Path, shape: Sequence[int] = (2, 3, 12, 12)) -> ImportedModel:
    return import_exported(path.read_bytes(), shapes={"": shape})


def meta(dtype: str, *sizes: int) -> dict[str, Any]:
    """Returns the `TensorMeta` of a contiguous tensor."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return {
        "dtype": _DTYPES[dtype],
        "sizes": [{"as_int": size} for size in sizes],
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def node(target: str, output: str, *arguments: dict[str, Any], **named: dict[str, Any]) -> dict[str, Any]:
    """Returns a call, for example `node("torch.ops.aten.relu.default", "y", tensor("x"))`."""
    inputs = [{"name": f"a{index}", "arg": argument, "kind": 1} for index, argument in enumerate(arguments)]
    inputs += [{"name": name, "arg": argument, "kind": 2} for name, argument in named.items()]
    return {"target": target, "inputs": inputs, "outputs": [tensor(output)], "metadata": {}}


def quantize(x: str, output: str, scale: float = 0.05, zero_point: int = 3) -> dict[str, Any]:
    return _conversion("quantize_per_tensor", x, output, scale, zero_point)


def dequantize(x: str, output: str, scale: float = 0.05, zero_point: int = 3) -> dict[str, Any]:
    return _conversion("dequantize_per_tensor", x, output, scale, zero_point)


def _conversion(name: str, x: str, output: str, scale: float, zero_point: int) -> dict[str, Any]:
    target = f"torch.ops.quantized_decomposed.{name}.default"
    bounds = ({"as_int": -128}, {"as_int": 127}, {"as_scalar_type": _DTYPES["int8"]})
    return node(target, output, tensor(x), {"as_float": scale}, {"as_int": zero_point}, *bounds)


def document(
    nodes: Sequence[dict[str, Any]], result: str = "y", shape: Sequence[int] = (1, 2, 4, 4), **changes: Any
) -> dict[str, Any]:
    """Returns the `model.json` of a program with the float32 input `x` and the output `result`."""
    graph = {"nodes": list(nodes), "tensor_values": {"x": meta("float32", *shape)}}
    signature = {
        "input_specs": [{"user_input": {"arg": tensor("x")}}],
        "output_specs": [{"user_output": {"arg": tensor(result)}}],
    }
    whole = {"graph_module": {"graph": graph, "signature": signature}, "schema_version": {"major": 8, "minor": 20}}
    return whole | changes


def program(whole: Any, records: Mapping[str, bytes | str] | None = None) -> bytes:
    """Returns an archive that contains the document `whole` and the files `records`. By default, it has no
    parameters.
    """
    own: dict[str, bytes | str] = {
        "archive_format": "pt2",
        "models/model.json": whole if isinstance(whole, str) else json.dumps(whole),
        "data/weights/model_weights_config.json": '{"config": {}}',
        "data/constants/model_constants_config.json": '{"config": {}}',
    }
    return archive(own | dict(records or {}))
