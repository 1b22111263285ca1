"""`aten::conv_transpose2d` between conversions of an exported program is computed in integers and gives PyTorch's
results.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.torch.exported import import_exported
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import PT2E
from service.core.errors import MalformedModel, OctetError
from service.core.models.arrays import Array
from tests.support.exported import dequantize, document, meta, node, program, quantize, tensor
from tests.support.qnn_models import compile_and_run_all
from tests.support.torchscript import FOLDER

CONVOLUTION = "torch.ops.aten.conv_transpose2d.input"
PER_CHANNEL = "torch.ops.quantized_decomposed.dequantize_per_channel.default"


def transposed(
    shape: tuple[int, ...], weights: Array, scales: Array, bias: Array, *geometry: Any, axis: int = 1
) -> bytes:
    """Returns a program with a transposed convolution from `x` to `y`, both of which are stored.

    Args:
        geometry: stride, padding, output padding, and the following arguments.
    """
    given = {"w": weights, "s": scales, "z": np.zeros(len(scales), np.int64), "b": bias}
    types = ({"as_int": axis}, {"as_int": -127}, {"as_int": 127}, {"as_scalar_type": 2})
    steps = [
        quantize("x", "q"),
        dequantize("q", "r"),
        node(PER_CHANNEL, "v", tensor("w"), tensor("s"), tensor("z"), *types),
        node(CONVOLUTION, "c", tensor("r"), tensor("v"), tensor("b"), *geometry),
        quantize("c", "t", 0.11, -9),
        dequantize("t", "y", 0.11, -9),
    ]
    whole = document(steps, shape=shape)
    whole["graph_module"]["graph"]["tensor_values"]["w"] = meta("int8", *weights.shape)
    specs = whole["graph_module"]["signature"]["input_specs"]
    specs += [{"parameter": {"arg": {"name": name}, "parameter_name": name}} for name in given]
    entry = {"is_param": True, "use_pickle": False}
    config = {
        name: entry | {"path_name": name, "tensor_meta": meta(values.dtype.name, *values.shape)}
        for name, values in given.items()
    }
    records: dict[str, Any] = {f"data/weights/{name}": values.tobytes() for name, values in given.items()}
    return program(whole, records | {"data/weights/model_weights_config.json": json.dumps({"config": config})})


def ints(*numbers: int) -> dict[str, Any]:
    return {"as_ints": list(numbers)}


CASES = ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("case", CASES)
def test_the_result_equals_pytorch(case: str) -> None:
    """Compares every stored value with those that `scripts/pt2_fixtures.py` wrote. PyTorch adds in float32, so values
    may differ: in an earlier comparison, one of 280,454 values differed by one step.
    """
    with np.load(FOLDER / "transposed.npz") as arrays:
        x, weights, scales, bias, geometry, expected = (
            arrays[f"{name}.{case}"] for name in ("x", "weights", "scales", "bias", "geometry", "y")
        )
    pairs = [ints(*pair) for pair in geometry.reshape(3, 2).tolist()]
    module = import_exported(transposed(x.shape, weights, scales, bias, *pairs)).module
    assert "qnn.conv2d_transpose" in str(module)
    np.testing.assert_array_equal(oracle.run_all(module, get_mode(PT2E), [[x]])[0][0], expected)


def test_compiled_code_equals_the_oracle() -> None:
    with np.load(FOLDER / "transposed.npz") as arrays:
        x, weights, scales, bias = (arrays[f"{name}.1"] for name in ("x", "weights", "scales", "bias"))
    module = import_exported(transposed(x.shape, weights, scales, bias, ints(2, 2), ints(1, 1), ints(1, 1))).module
    (expected,) = oracle.run(module, get_mode(PT2E), [x])
    (compiled,) = compile_and_run_all(canonicalize(module, get_mode(PT2E)), [x])
    np.testing.assert_array_equal(compiled, expected)


@pytest.mark.parametrize("axis", [[], [{"as_int": 0}]])
def test_a_conversion_per_channel_without_an_axis_is_malformed(axis: list[dict[str, Any]]) -> None:
    """The axis is missing, or it belongs to a tensor whose shape is not in the file."""
    data = transposed((1, 2, 4, 4), WEIGHTS, SCALES, BIAS)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in records if name.endswith("model.json"))
    whole = json.loads(records[name])
    graph = whole["graph_module"]["graph"]
    del graph["tensor_values"]["w"]
    conversion = graph["nodes"][2]
    types = {"dtype": {"as_scalar_type": 2}, "quant_min": {"as_int": -127}, "quant_max": {"as_int": 127}}
    named = [{"name": name, "arg": value, "kind": 2} for name, value in types.items()]
    positions = [{"name": "axis", "arg": value, "kind": 1} for value in axis]
    conversion["inputs"] = [*conversion["inputs"][:3], *positions, *named]
    with pytest.raises(MalformedModel, match="its arguments do not fit together"):
        import_exported(
            program(whole, {key.split("/", 1)[1]: value for key, value in records.items() if "weight" in key})
        )


WEIGHTS = np.ones((2, 3, 3, 2), np.int8)
SCALES, BIAS = np.full(3, 0.1, np.float32), np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("geometry", "axis", "message"),
    [
        ([ints(1 << 20, 1)], 1, "parts do not fit together"),
        ([ints(2, 2), ints(0, 0), ints(2, 0)], 1, "output padding [2, 0] for strides [2, 2]"),
        ([ints(2, 2), ints(3, 0)], 1, "padding [3, 0, 3, 0] is too large for a kernel"),
        ([ints(1, 1), ints(0, 0), ints(0, 0), {"as_int": 3}], 1, "parts do not fit together"),
        ([ints(1, 1)], 0, "an axis other than their filters"),
    ],
)
def test_unsupported_geometry_is_refused(geometry: list[dict[str, Any]], axis: int, message: str) -> None:
    scales = SCALES if axis == 1 else SCALES[:2]
    with pytest.raises(OctetError) as caught:
        import_exported(transposed((1, 2, 4, 4), WEIGHTS, scales, BIAS, *geometry, axis=axis))
    assert message in caught.value.message
