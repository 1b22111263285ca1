"""Imports networks of dense layers from JSON files.

octet compile --dialect json_network.py network.json -o compiled

A file, in which weights have one row for each output, and biases are stored with the scale of the sums:

    {"network": 1,
     "input": {"name": "x", "shape": [1, 2], "type": "!quant.uniform<i8:f32, 0.5:3>"},
     "layers": [{"name": "y", "weight": [[1, -2], [3, 4], [5, 6]], "weight_scale": 0.25, "bias": [7, 8, 9],
                 "type": "!quant.uniform<i8:f32, 0.25>"}]}
"""

import json

import numpy as np

from octet import qnn

networks = qnn.Dialect("networks")


@networks.importer("network", heads=[b'{"network": 1'], numerics="litert-reference")
def read(data, graph):
    """Adds the input, the layers and the output. `KeyError` and `ValueError` are reported as a damaged file."""
    file = json.loads(data)
    in_type = qnn.type(file["input"]["type"])
    value = graph.input(file["input"]["name"], file["input"]["shape"], in_type.dtype)
    for layer in file["layers"]:
        name, out_type = layer["name"], qnn.type(layer["type"])
        weight_type = qnn.QuantizedType("int8", (float(layer["weight_scale"]),), (0,))
        weight = graph.constant(np.array(layer["weight"]), "int8")
        bias = graph.constant(np.array(layer["bias"]), "int32")
        sums = graph.emit(qnn.dense(value, weight, bias, in_type=in_type, weight_type=weight_type), f"{name}_sums")
        sums_type = qnn.accumulator_type(in_type, weight_type, axis=1)
        value = graph.emit(qnn.requantize(sums, sums_type, out_type), name)
        in_type = out_type
    graph.output(**{file["layers"][-1]["name"]: value})
