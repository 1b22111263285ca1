"""An ONNX graph during its rewriting: its constants, and for each operator the operators before and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.qdq import MOVED, Graph, Operator
from service.core.models.arrays import Array

BYTES = ("int8", "uint8")
CHANNELS = 1  # the axis of an image's channels
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# The attribute of a conversion that the file transposes afterwards, and that ONNX Runtime does not move: it has several
# scales, or 4 bits without a zero point. The optimizer then does not find it in front of its reader.
TURNED = "octet.turned"


class OnnxGraph(Graph):
    """The graph in its current state.

    Attributes:
        model: the model as it was read.
        constants: the constants by name. Rules may add constants.
        rounded: name of real weights -> the stored values, scale and zero point that replace them.
    """

    def __init__(self, model: Model) -> None:
        names = {*model.constants, *(end.name for end in model.inputs)}
        names |= {name for operator in model.operators for name in operator.outputs}
        super().__init__(names, (end.name for end in model.outputs))
        self.model = model
        self.constants = dict(model.constants)
        self.rounded: dict[str, tuple[str, str, str]] = {}
        self._open = _of_open_shape(model)

    @classmethod
    def whole(cls, model: Model) -> OnnxGraph:
        """Returns the graph with all operators of `model`."""
        graph = cls(model)
        graph.replace_all(model.operators)
        return graph

    def has_known_shape(self, name: str) -> bool:
        """Returns true if the file determines every dimension of a tensor."""
        return name not in self._open

    def known_value(self, name: str) -> Array | None:
        """Returns the elements of a constant."""
        tensor = self.constants.get(name)
        return tensor.data if tensor is not None else None

    def scalar(self, name: str) -> float | None:
        """Returns the value of a constant of one element."""
        tensor = self.constants.get(name)
        return (
            float(tensor.data.reshape(-1)[0]) if tensor and tensor.data is not None and tensor.data.size == 1 else None
        )


def _of_open_shape(model: Model) -> set[str]:
    """Returns the names of the tensors whose shapes depend on a dimension that the file leaves open."""
    found = {
        end.name
        for end in model.inputs
        if end.shape is None or not all(isinstance(dim, int) and dim > 0 for dim in end.shape)
    }
    for operator in model.operators:
        if found.isdisjoint(operator.inputs) or _reshapes_to_constants(model, operator):
            continue
        found.update(name for name in operator.outputs if name)
    return found


def _reshapes_to_constants(model: Model, operator: Operator) -> bool:
    target = model.constants.get(operator.inputs[1]) if len(operator.inputs) > 1 else None
    return (
        operator.op_type == "Reshape"
        and target is not None
        and target.data is not None
        and bool((target.data > 0).all())
    )


def is_simple(graph: OnnxGraph, conversion: Operator) -> bool:
    """Returns true if arithmetic on stored values can use a conversion: it has one scale, which is constant and
    positive, and stores 8 bits.
    """
    scale = graph.scalar(conversion.inputs[1])
    return (
        scale is not None
        and scale > 0
        and conversion.attributes.get("block_size", 0) == 0
        and all(name == "" or graph.scalar(name) is not None for name in conversion.inputs[2:])
        and storage_of(graph, conversion) in BYTES
    )


def channel_parameters(graph: OnnxGraph, conversion: Operator) -> tuple[Array, Array] | None:
    """For a conversion of 8-bit values with one scale per channel and equal zero points, returns the scales and the
    zero point. Returns None for other conversions.
    """
    if conversion.attributes.get("block_size", 0) or storage_of(graph, conversion) not in BYTES:
        return None
    scales, points = (graph.known_value(name) for name in parameters(conversion))
    if conversion.attributes.get("axis", CHANNELS) != CHANNELS or scales is None or points is None:
        return None
    if scales.dtype != np.float32 or not ((scales > 0) & np.isfinite(scales)).all() or points.size != scales.size:
        return None
    if points.size == 0 or (points != points.flat[0]).any():
        return None
    return scales.reshape(-1), points.reshape(-1)[:1].reshape(())


def are_alike(graph: OnnxGraph, conversions: Sequence[Operator]) -> bool:
    """Returns true if the given simple conversions have equal scales, zero points and storage types."""
    kinds = set()
    for conversion in conversions:
        scale, point = parameters(conversion)
        kinds.add((graph.scalar(scale), graph.scalar(point) if point else 0.0, storage_of(graph, conversion)))
    return len(kinds) == 1


def storage_of(graph: OnnxGraph, conversion: Operator) -> str:
    """Returns the type of a conversion's stored values. This is the type of the zero point, or else of the operator
    that computes the stored values.
    """
    point = parameters(conversion)[1]
    if conversion.op_type == DEQUANTIZE:
        return stored_type(graph, conversion.inputs[0], point)
    return graph.constants[point].dtype if point in graph.constants else _quantized_type(conversion)


def stored_type(graph: OnnxGraph, name: str, point: str) -> str:
    """Returns the type of the stored values `name`. This is the type of their zero point; or else of the constant, of
    the model's input, or of the QuantizeLinear that computes the values.
    """
    constant = graph.constants.get(point or name)
    if constant is not None:
        return constant.dtype
    given = next((end.dtype for end in graph.model.inputs if end.name == name), None)
    maker = graph.made_by(name, QUANTIZE)
    if given is not None or maker is None or parameters(maker)[1]:
        return given or "uint8"  # arithmetic on stored values checks their type itself
    return _quantized_type(maker)


def _quantized_type(conversion: Operator) -> str:
    """Returns the type that a QuantizeLinear without a zero point stores."""
    return DTYPES.get(conversion.attributes.get("output_dtype") or 2, "")


def parameters(conversion: Operator) -> tuple[str, str]:
    """Returns the names of the scale and the zero point."""
    padded = (*conversion.inputs, "", "")
    return padded[1], padded[2]


def bounds_of(graph: OnnxGraph, activation: Operator, name: str) -> tuple[float, float] | None:
    if activation.inputs[:1] != (name,):
        return None
    if activation.op_type == "Relu":
        return 0.0, math.inf
    if activation.op_type != "Clip":
        return None
    values: list[object] = [activation.attributes.get("min", -math.inf), activation.attributes.get("max", math.inf)]
    for position, bound in enumerate(activation.inputs[1:3]):
        values[position] = values[position] if bound == "" else graph.scalar(bound)
    low, high = values
    return (low, high) if isinstance(low, float) and isinstance(high, float) and low <= high else None


def quantizes(graph: OnnxGraph, conversion: Operator, name: str) -> bool:
    """Returns true if ONNX Runtime treats the QuantizeLinear `conversion` as following `name`. ONNX Runtime does so if
    `conversion` follows directly, or after activations that change no stored value because saturation to 8 bits has the
    same or narrower bounds (`IsClipMadeRedundantByQ` in qdq_transformer/qdq_util.cc).
    """
    source = conversion.inputs[0]
    while source != name:
        activation = graph.producers.get(source)
        if activation is None or not _is_redundant(graph, activation, conversion):
            return False
        source = activation.inputs[0]
    return True


def _is_redundant(graph: OnnxGraph, activation: Operator, conversion: Operator) -> bool:
    bounds = bounds_of(graph, activation, activation.inputs[0]) if activation.inputs else None
    scale, point = (graph.scalar(name) if name else 0.0 for name in parameters(conversion))
    if bounds is None or scale is None or point is None:
        return False
    limits = np.iinfo(storage_of(graph, conversion))
    low, high = (np.rint(np.float32(bound) / np.float32(scale)) + point for bound in bounds)
    return bool(low <= limits.min and high >= limits.max)


def stored_values(graph: OnnxGraph, name: str) -> tuple[str, str, str] | None:
    """If a DequantizeLinear with one scale computes `name`, returns its stored values, scale and zero point."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or not is_simple(graph, conversion):
        return None
    return (conversion.inputs[0], *parameters(conversion))


def dequantized(graph: OnnxGraph, name: str) -> tuple[str, str, str] | None:
    """Returns the result of `stored_values`, but only if ONNX Runtime also finds the DequantizeLinear before the reader
    of `name`. Otherwise ONNX Runtime computes the operator that reads `name` in float32, whose result may round to
    another step than arithmetic on stored values.
    """
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or conversion.attributes.get(MOVED):
        return None
    return stored_values(graph, name)


def weights_of(graph: OnnxGraph, name: str, axis: int) -> tuple[str, str, str] | None:
    """Returns the result of `stored_values` for constant weights, which may have several scales along one axis."""
    conversion = graph.made_by(name, DEQUANTIZE)
    if conversion is None or conversion.inputs[0] not in graph.constants or conversion.attributes.get("block_size", 0):
        return None
    weights = graph.constants[conversion.inputs[0]]
    if weights.dtype not in BYTES:
        return None
    named = conversion.attributes.get("axis", 1)
    if not is_simple(graph, conversion) and not (isinstance(named, int) and named % max(1, len(weights.shape)) == axis):
        return None
    return (conversion.inputs[0], *parameters(conversion))
